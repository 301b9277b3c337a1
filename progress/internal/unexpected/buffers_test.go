package unexpected

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBuffers(t *testing.T) {
	for n := 1; n < 1<<20; n += 1 + n/50 {
		c, size := class(n)
		require.GreaterOrEqual(t, size, n)
		require.Less(t, c, numClasses)
		if n > minBuffer {
			require.LessOrEqual(t, size, n+n/3+1, "%d", n)
		}
		again, same := class(size)
		require.Equal(t, []int{c, size}, []int{again, same}, "size %d is not of its own class", n)
	}
	var b buffers
	b.init(1 << 20)
	for range 100 {
		b.put(make([]byte, 1<<16))
	}
	require.LessOrEqual(t, b.kept, b.keep)
	require.Len(t, b.get(1<<16), 1<<16)
	b.put(b.get(0))
	b.put(make([]byte, 100)) // not one of ours: no class has this size
}
