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

// TestDisplay checks the display of a campaign: a bar for a terminal, which is redrawn, else lines.
func TestDisplay(t *testing.T) {
	c := &campaign{command: &command{flags: &flags{seeds: 100}, stderr: &bytes.Buffer{}}}
	show, _ := c.display()
	show(7, time.Millisecond, false)
	show(20, 10*time.Second, false)
	show(100, 20*time.Second, true)
	require.Equal(t, "sim: 7 of 100 seeds\nsim: 20 of 100 seeds, 2 a second\n", c.stderr.(*bytes.Buffer).String())

	var b bytes.Buffer
	show = bar(&b, 1<<63)
	show(7, time.Millisecond, false)
	require.NotContains(t, b.String(), " a second", "no rate of a moment")
	show(20, 10*time.Second, true)
	require.Contains(t, b.String(), "sim, 2 a second")
	require.Contains(t, b.String(), "20/")
	require.NotContains(t, b.String(), "/s")
	require.Equal(t, byte('\n'), b.Bytes()[b.Len()-1])
}
