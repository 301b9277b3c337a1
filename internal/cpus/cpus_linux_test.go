package cpus

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBind(t *testing.T) {
	runtime.LockOSThread() // for good: the thread ends with the test's goroutine
	all, err := Allowed()
	require.NoError(t, err)
	require.IsIncreasing(t, append([]int{-1}, all...))
	last := all[len(all)-1]
	require.NoError(t, Bind(0, last))
	now, err := Allowed()
	require.NoError(t, err)
	require.Equal(t, []int{last}, now)
	require.ErrorContains(t, Bind(0, last, 1<<20), "processor 1048576 is beyond those that can be named")
}
