package link

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRead reads what a rank's program may write to its launcher: only reports of the known forms
// are passed on.
func FuzzRead(f *testing.F) {
	f.Add([]byte("abort 3 \"the sky fell\"\nstate 2\nlost 1\n"))
	f.Add([]byte("state 9\nstate -1\nlost 99999999999999999999\nabort 1 \"\n"))
	f.Add(append(bytes.Repeat([]byte("x"), 2*maxLine), "\nlost 4\n"...))
	f.Fuzz(func(t *testing.T, in []byte) {
		n := 0
		Read(bytes.NewReader(in), Reader{
			Abort: func(_ int, reason string) { n++; require.LessOrEqual(t, len(reason), maxLine) },
			Say:   func(s State) { n++; require.Contains(t, []State{Outside, Joining, Joined, Closed, Finished}, s) },
			Lost:  func(int) { n++ },
		})
		require.LessOrEqual(t, n, bytes.Count(in, []byte("\n")))
	})
}
