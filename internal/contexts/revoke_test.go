package contexts

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// revocable is a Comm of n ranks that are not in their order, and what its ranks hear.
func revocable(m *contextsModel, n int) (comms []*Comm, heard []string) {
	members := make(order, n)
	for i := range members {
		members[i] = (i*7 + 3) % n
	}
	heard = make([]string, n)
	for _, r := range m.ranks {
		r.cs.free.set(5, false)
		comms = append(comms, &Comm{Context: 5, ID: 1 << 40, Group: members, Revoked: func(by int, reason string) error {
			heard[r.rank] += fmt.Sprint(by, " ", reason)
			return nil
		}})
	}
	return comms, heard
}

// Each rank of a large Comm tells few others, and all hear the same, once: also those that have not
// opened it yet, that have closed it, and where all that were told first are lost.
func TestRevokeReachesAll(t *testing.T) {
	const n = 100
	m := newContextsModel(t, 1, n)
	comms, heard := revocable(m, n)
	for _, r := range m.ranks {
		if r.rank%3 != 0 {
			r.cs.Open(r, comms[r.rank])
		}
		if r.rank%3 == 1 && r.rank != 1 {
			r.cs.Close(r, comms[r.rank], false)
		}
	}
	reason := strings.Repeat("ä", 150)
	m.ranks[1].cs.Revoke(m.ranks[1], comms[1], reason)
	for _, r := range m.ranks {
		if len(r.in[1]) != 0 { // dies before it passes the word on
			r.dead = true
		}
	}
	for range 40 {
		for _, r := range m.ranks {
			for src := range m.ranks {
				require.LessOrEqual(t, len(r.in[src]), 1, "rank %d has told one rank twice", src)
				if !r.dead {
					m.deliver(r, src)
				}
				if m.ranks[src].dead && !r.dead {
					m.gone(r, src)
				}
			}
		}
	}
	for _, r := range m.ranks {
		if !r.dead && r.rank%3 == 0 {
			r.cs.Open(r, comms[r.rank])
		}
	}
	m.deliverAll()
	for _, r := range m.ranks {
		switch {
		case r.dead:
			require.Empty(t, heard[r.rank])
		default:
			require.Equal(t, "1 "+reason[:maxReason], heard[r.rank], "rank %d", r.rank)
			told := r.cs.live[5].revoked.told
			require.LessOrEqual(t, len(told), 2*14+3, "rank %d has told", r.rank) // those that are lost too
		}
	}
}

// A REVOKE that comes late, or from outside, revokes nothing.
func TestRevokeOfOthers(t *testing.T) {
	m := newContextsModel(t, 1, 4)
	r := m.ranks[0]
	heard := 0
	c := &Comm{Context: 5, ID: 7, Group: order{0, 1}, Revoked: func(int, string) error { heard++; return nil }}
	of := func(id uint64, by int, reason string) []byte {
		said := revoke{id, by, reason}
		return said.notice(5)
	}
	require.NoError(t, r.cs.Notice(r, 1, of(7, 1, "free")))
	require.Empty(t, r.cs.early)
	r.cs.free.set(5, false)
	require.NoError(t, r.cs.Notice(r, 1, of(6, 1, "of the Comm before")))
	require.NoError(t, r.cs.Notice(r, 2, of(7, 2, "of no member")))
	r.cs.Open(r, c)
	require.Empty(t, r.cs.early)
	require.NoError(t, r.cs.Notice(r, 1, of(6, 1, "")))
	require.Zero(t, heard)
	require.EqualError(t, r.cs.Notice(r, 2, of(7, 1, "")), "REVOKE of context 5, which is not one of rank 2")
	for text, body := range map[string][]byte{
		"REVOKE of 12 bytes":                           of(7, 1, "")[:16],
		"REVOKE by rank 4, with a reason of 1 bytes":   of(7, 4, "x"),
		"REVOKE by rank 1, with a reason of 201 bytes": of(7, 1, strings.Repeat("x", 201)),
		"REVOKE by rank 1, with a reason of 4 bytes":   of(7, 1, "long")[:20],
		"REVOKE by rank 1, with a reason of 0 bytes":   slices.Concat(of(7, 1, ""), make([]byte, 4)),
	} {
		require.EqualError(t, r.cs.Notice(r, 1, body), text)
	}
	require.Zero(t, heard)
	require.NoError(t, r.cs.Notice(r, 1, of(7, 3, "\xff")))
	require.NoError(t, r.cs.Notice(r, 1, of(7, 1, "again")))
	require.Equal(t, 1, heard)
	require.Equal(t, "?", r.cs.live[5].revoked.reason)
}

// A collective call hears once that its Comm is revoked; one that begins later does at once.
func TestRevokeOfCalls(t *testing.T) {
	m := newContextsModel(t, 1, 2)
	r := m.ranks[0]
	comms, _ := revocable(m, 2)
	c, heard := comms[0], 0
	r.cs.Open(r, c)
	begin := func() { r.cs.Begin(r, c, 0, func() {}, func() { heard++ }) }
	begin()
	r.cs.End(c)
	begin()
	require.Zero(t, heard)
	r.cs.Revoke(r, c, "")
	r.cs.Revoke(r, c, "")
	require.Equal(t, 1, heard)
	r.cs.End(c)
	begin()
	require.Equal(t, 2, heard)
}
