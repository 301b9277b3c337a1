package jobtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() { roles["kid"] = kidRole }

// kidRole has each rank start a program that uses the library too, with the rank's own variables,
// and then for itself. The ranks are not disturbed.
func kidRole(ctx context.Context, w *p2p.World) error {
	want := []string{"is in use on this host", "has a job secret, rank "}[min(w.Rank(), 1)]
	out, err := startKid(ctx)
	if err == nil || !strings.Contains(out, want) || !strings.Contains(out, "TAGMATCH_BOOTSTRAP=singleton") {
		return fmt.Errorf("a child that says to be the rank: %v: %s, want %q", err, out, want)
	}
	if out, err := startKid(ctx, "TAGMATCH_BOOTSTRAP=singleton"); err != nil || !strings.Contains(out, "rank 0 of 1") {
		return fmt.Errorf("a child for itself: %v: %s", err, out)
	}
	_, err = exchange(ctx, w, 1, make([]uint64, w.Size()))
	return err
}

func startKid(ctx context.Context, env ...string) (string, error) {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(append(os.Environ(), roleVar+"=hello", "TAGMATCH_JOIN_TIMEOUT=none"), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestChildOfARank: a child that takes itself for the rank fails, and does not wait for the others
// until the time to join is over.
func TestChildOfARank(t *testing.T) {
	job{n: 3, role: "kid", device: "tcp"}.succeed(t)
}
