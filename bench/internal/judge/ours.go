package judge

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/peers"
)

// words are those that start bench, for iters messages.
func (s command) words(self string, iters int) []string {
	args := append([]string{self}, s.args...)
	if !s.fixed {
		args = append(args, "-iters", strconv.Itoa(iters))
	}
	args = append(args, "-json")
	return args
}

// run measures once. The figures are those of one line that bench prints, and the number of cycles
// of the garbage collector after the first second, in which programs start.
func (s command) run(ctx context.Context, p Program, iters int) (peers.Sample, error) {
	args := s.words(p.Path, iters)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	// An interrupt lets the program end its ranks.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Env = append(os.Environ(), trace, p.Env)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	sample, err := peers.Parse(s.pick(out.Bytes()))
	if err == nil {
		sample[cycles] = float64(collections(stderr.String()))
	}
	return sample, err
}

// pick returns the line that has the figure.
func (s command) pick(out []byte) []byte {
	var picked []byte
	for line := range bytes.Lines(out) {
		if bytes.Contains(line, []byte(s.line)) {
			picked = bytes.TrimSpace(line)
		}
	}
	return picked
}

// trace has the garbage collector of each rank tell of its cycles.
const trace = "GODEBUG=gctrace=1"

// cycle is how it tells: the number of the cycle, and seconds since the start of the program.
var cycle = regexp.MustCompile(`(?m)^gc \d+ @(\d+)\.\d+s `)

// collections are the cycles that did not begin in a program's first second.
func collections(stderr string) (n int) {
	for _, m := range cycle.FindAllStringSubmatch(stderr, -1) {
		if m[1] != "0" {
			n++
		}
	}
	return n
}
