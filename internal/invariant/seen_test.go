//go:build invariants

package invariant

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSeen: a failed check is recorded by its place, whether it calls Broken or Check.
func TestSeen(t *testing.T) {
	defer func(before string) { seenFile = before }(seenFile)
	seenFile = filepath.Join(t.TempDir(), "seen")
	var want []string
	place := func(more int) {
		_, file, line, _ := runtime.Caller(1)
		want = append(want, fmt.Sprintf("%s:%d\n", file, line+more))
	}
	place(1)
	require.Panics(t, func() { Broken("V1", "") })
	place(1)
	require.Panics(t, func() { Check(false, "V1", "") })
	Check(true, "V1", "")
	text, err := os.ReadFile(seenFile)
	require.NoError(t, err)
	for _, w := range want {
		require.Contains(t, string(text), w)
	}
}
