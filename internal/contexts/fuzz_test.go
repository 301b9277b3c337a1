package contexts

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzNotice has one rank send notices of any contents while a Comm without it is opened, used in
// calls and closed: that one becomes free, and only once both of its ranks have closed it.
func FuzzNotice(f *testing.F) {
	for kind := byte(noticeFlush); kind <= noticeBallot; kind++ {
		f.Add(append([]byte{8}, notice(kind, 1, 0, 1)...))
		f.Add(append([]byte{4, 0, 8, 0, 8}, notice(kind, 2, 2)...))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		const hostile, context = 2, 1
		m := newContextsModel(t, 1, 3)
		var comms []*Comm
		for _, r := range m.ranks[:hostile] {
			r.cs.free.set(context, false)
			comms = append(comms, &Comm{Context: context, ID: 1, Group: order{0, 1}})
			r.cs.Open(r, comms[r.rank])
			r.reached = []bool{true, true, true}
		}
		deliver := func() {
			for range 4 {
				for _, r := range m.ranks[:hostile] {
					for src := range hostile {
						m.deliver(r, src)
					}
				}
			}
		}
		closed := 0
		for len(in) > 0 {
			n := min(int(in[0])%64, len(in)-1)
			said, r := in[1:1+n], m.ranks[in[0]>>6&1]
			in = in[1+n:]
			if n > 0 {
				_ = r.cs.Notice(r, hostile, said) // an error loses that rank
			} else if closed < 2 {
				c := m.ranks[closed]
				c.cs.Close(c, comms[closed], false)
				c.cs.Idle(c, Base(context))
				closed++
			}
			require.True(t, closed == 2 || m.ranks[0].cs.free[0]>>context&1 == 0, "a Comm that one of its ranks has not closed is free")
			deliver()
		}
		for ; closed < 2; closed++ {
			c := m.ranks[closed]
			c.cs.Close(c, comms[closed], false)
			c.cs.Idle(c, Base(context))
		}
		deliver()
		deliver()
		for _, r := range m.ranks[:hostile] {
			require.NotZero(t, r.cs.free[0]>>context&1, "rank %d keeps a context that is closed", r.rank)
		}
	})
}
