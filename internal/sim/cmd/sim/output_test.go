package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var errFull = errors.New("no space left on device")

// full is a disk with room for n more writes.
type full struct{ n int }

func (f *full) Write(b []byte) (int, error) {
	if f.n--; f.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// TestFull checks that a run whose output cannot be written does not pass.
func TestFull(t *testing.T) {
	for _, args := range [][]string{{"-seed", "3"}, {"-seed", "3", "-v"}, {"-seeds", "3"}} {
		for room := range 2 {
			var errs bytes.Buffer
			f := &full{room}
			code := run(context.Background(), args, f, &errs)
			if room == 1 && slices.Equal(args, []string{"-seed", "3"}) {
				require.Zero(t, code, "one line is all")
				continue
			}
			require.Equal(t, 1, code)
			require.Equal(t, "sim: no space left on device\n", errs.String())
			require.Equal(t, -1, f.n, "nothing is written after an error")
		}
	}
}

// TestDisplay checks the lines that a campaign prints now and then: a moment gives no rate.
func TestDisplay(t *testing.T) {
	c := &campaign{command: &command{flags: &flags{seeds: 100}, stderr: &bytes.Buffer{}}}
	c.show(7, time.Millisecond)
	c.show(20, 10*time.Second)
	require.Equal(t, "sim: 7 of 100 seeds\nsim: 20 of 100 seeds, 2 a second\n", c.stderr.(*bytes.Buffer).String())
}
