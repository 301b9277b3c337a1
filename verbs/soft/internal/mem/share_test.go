package mem

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

// TestShare compares which shared memory a region is found in with a search of all of them.
func TestShare(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tab, memory := NewTable(), make([]byte, 1000)
	piece := func() []byte {
		from := rng.IntN(len(memory))
		return memory[from : from+1+rng.IntN(min(60, len(memory)-from))]
	}
	type shared struct {
		buf []byte
		s   *Share
	}
	var all []shared
	var regions []uint32
	for range 20_000 {
		switch b := piece(); rng.IntN(4) {
		case 0:
			s, err := tab.Share(b, -1)
			overlaps := slices.ContainsFunc(all, func(o shared) bool { return Contains(o.buf, b[:1]) || Contains(b, o.buf[:1]) })
			require.Equal(t, overlaps, err != nil)
			if err == nil {
				all = append(all, shared{b, s})
			}
		case 1:
			r, err := tab.Register(b, verbs.AccessRemoteRead, nil)
			require.NoError(t, err)
			regions = append(regions, r.key)
			i := slices.IndexFunc(all, func(o shared) bool { return Contains(o.buf, b) })
			home := Home(tab.dir.At(r.key), r.key)
			require.Equal(t, i >= 0, home != 0)
			if i >= 0 {
				require.Equal(t, all[i].s.r.key, home)
				require.Same(t, all[i].s, r.share)
			}
		case 2:
			if n := len(regions); n > 0 {
				i := rng.IntN(n)
				tab.Remove(regions[i])
				regions = slices.Delete(regions, i, i+1)
			}
		case 3:
			if n := len(all); n > 0 {
				i := rng.IntN(n)
				used := slices.ContainsFunc(regions, func(key uint32) bool { return tab.Find(key).share == all[i].s })
				require.Equal(t, used, all[i].s.Close() != nil)
				if !used {
					require.Error(t, all[i].s.Close(), "again")
					all = slices.Delete(all, i, i+1)
				}
			}
		}
	}
	_, ok := Shared(tab.dir.At(0), 0)
	require.False(t, ok)
}
