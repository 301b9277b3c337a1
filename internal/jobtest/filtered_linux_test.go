package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["filtered"] = filteredRole
	if os.Getenv(roleVar) == "filtered" {
		configure = func(_ context.Context, c *p2p.Config) error { c.Ports = filteredPorts; return nil }
	}
}

const filteredPorts = "20000-20009"

// TestFiltered has a packet filter drop what comes to the data port of rank 1: its loss is never
// the end of a deadline.
func TestFiltered(t *testing.T) {
	everyWay(t, "filtered", cutTimeout, map[int][]string{0: onlyRC}, func(list []*network) {
		for _, w := range list {
			// The rule for addresses of the host itself comes behind that of the ports.
			w.ip("-n", w.ns(1), "rule", "add", "pref", "10", "lookup", "local")
			w.ip("-n", w.ns(1), "rule", "del", "pref", "0")
			w.ip("-n", w.ns(1), "rule", "add", "pref", "5", "iif", "eth0", "ipproto", "tcp", "dport", filteredPorts, "blackhole")
			w.tell("filtered")
		}
	})
}

// filteredRole: rank 0 tries again after each end of its deadline, as programs do, until another
// error tells it not to. Rank 1 learns of it.
func filteredRole(ctx context.Context, w *p2p.World) error {
	if err := sayAndHear("ready", "filtered"); err != nil {
		return err
	}
	if w.Rank() == 2 {
		return nil
	}
	peer := 1 - w.Rank()
	if w.Rank() == 1 {
		_, err := w.Comm().Recv(ctx, peer, 1, nil)
		return lostTo(peer, err, "")
	}
	for range 60 {
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		err := w.Comm().Send(short, peer, 1, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		if err := lostTo(peer, err, "does not answer"); err != nil {
			return err
		}
		_, err = w.Comm().Recv(context.Background(), peer, 2, nil)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return fmt.Errorf("a loss that is the caller's doing: %w", err)
		}
		return nil
	}
	return errors.New("the deadline ended 60 times, and rank 1 is not lost")
}
