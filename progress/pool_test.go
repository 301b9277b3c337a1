package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tagmatch/tagmatch/progress/internal/unexpected"
)

// newPool is a pool with its accounts open.
func newPool(limit int64, n int, largest uint64) (*pool, []account) {
	b, accounts := new(pool), make([]account, n)
	initial := b.init(limit, n, largest)
	for i := range accounts {
		b.open(&accounts[i], initial)
	}
	return b, accounts
}

// busy lets the peer send all it may and then takes it in, as the engine does. It reports how much
// that was.
func (b *pool) busy(a *account, cost uint64) (n int) {
	for a.received+cost <= a.told {
		b.receive(a, cost)
		n++
		if a.short() && b.grow(a) {
			b.renew(a)
		}
	}
	for range n {
		if b.consume(a, cost) {
			b.renew(a)
		}
	}
	return n
}

// Windows follow use: one busy peer gets half of the pool, two a third each, and they give way to
// each other.
func TestPoolShares(t *testing.T) {
	const n, limit = 16, 16 << 20
	b, accounts := newPool(limit, n, unexpected.EagerCost(4096))
	initial := accounts[0].initial
	spare := float64(limit - n*int64(initial))
	for _, active := range [][]int{{0}, {0, 1}, {0, 1, 2}, {3, 4, 5}} {
		for range 100 {
			for _, i := range active {
				b.busy(&accounts[i], unexpected.EagerCost(1000))
			}
			require.LessOrEqual(t, b.committed, b.limit)
		}
		if active[0] != 0 {
			break
		}
		for _, i := range active {
			// A quarter of a window may be free for others, until its peer is told of it.
			require.InEpsilon(t, spare/float64(len(active)+1), float64(accounts[i].window-initial), 0.25, "%d of %d", i, len(active))
		}
	}
	for i := range accounts {
		switch {
		case i >= 6:
			require.Equal(t, initial, accounts[i].window)
		case i >= 3: // from what three others have left, who are idle now
			require.Greater(t, float64(accounts[i].window-initial), spare/4/5)
		}
	}
	// The windows of the idle shrink as soon as something of them is consumed.
	before := accounts[0].window
	b.busy(&accounts[0], unexpected.EagerCost(1000))
	b.busy(&accounts[0], unexpected.EagerCost(1000))
	require.Less(t, accounts[0].window, before)
}

// A peer that keeps within its window never gets a larger one, and one whose messages stay here
// gets no more than half.
func TestPoolGrowsForNeed(t *testing.T) {
	b, accounts := newPool(1<<20, 4, unexpected.EagerCost(256))
	a := &accounts[0]
	for range 10000 {
		require.True(t, b.receive(a, unexpected.EagerCost(8)))
		require.False(t, a.short())
		require.False(t, b.grow(a))
		if b.consume(a, unexpected.EagerCost(8)) {
			require.True(t, b.renew(a))
		}
	}
	require.Equal(t, a.initial, a.window)
	kept := int64(0)
	for b.receive(a, unexpected.EagerCost(8)) {
		kept += int64(unexpected.EagerCost(8))
		if a.short() && b.grow(a) {
			require.True(t, b.renew(a))
		}
	}
	require.InEpsilon(t, float64(a.initial)+float64(b.limit-4*int64(a.initial))/2, float64(kept), 0.05)
	require.LessOrEqual(t, b.committed, b.limit)
}

// With nothing to give a peer has no credit, and what it is asked for goes through all the same.
func TestPoolOfNothing(t *testing.T) {
	for _, limit := range []int64{-1, 0, 1} {
		b, accounts := newPool(limit, 2, unexpected.EagerCost(256))
		a := &accounts[0]
		require.Zero(t, a.window)
		require.False(t, b.grow(a))
		require.False(t, b.renew(a))
		a.excess = true
		for i := range uint64(100) {
			require.True(t, b.receive(a, unexpected.RecordCost))
			require.EqualValues(t, unexpected.RecordCost, b.committed)
			require.True(t, b.consume(a, unexpected.RecordCost))
			require.True(t, b.renew(a))
			require.Equal(t, (i+1)*unexpected.RecordCost, a.told, "what it has sent, and no more")
			require.False(t, b.grow(a))
		}
		require.Zero(t, b.committed)
		a.excess = false
		require.False(t, b.receive(a, unexpected.RecordCost))
		require.Zero(t, b.committed, "it is not kept")
	}
}

// Many ranks share what there is: half of it is theirs from the start, the rest is for those who
// need it.
func TestPoolOfManyPeers(t *testing.T) {
	const n = 10000
	b, accounts := newPool(defaultUnexpectedLimit, n, unexpected.EagerCost(8192))
	require.LessOrEqual(t, b.committed, b.limit/2)
	require.Greater(t, accounts[0].window, uint64(3000))
	for range 30 {
		b.busy(&accounts[n-1], unexpected.EagerCost(8192)) // more than its window
		if b.grow(&accounts[n-1]) {                        // so it is held up
			b.renew(&accounts[n-1])
		}
	}
	require.Greater(t, accounts[n-1].window, uint64(10<<20))
	for i := range accounts {
		b.busy(&accounts[i], unexpected.RecordCost)
		require.LessOrEqual(t, b.committed, b.limit)
	}
	for i := range accounts {
		b.close(&accounts[i])
	}
	require.Zero(t, b.committed)
}

// What a peer has not been told of its initial window is not for others: it can always be told.
func TestPoolKeepsInitialWindows(t *testing.T) {
	const n, busy = 64, 8
	b, accounts := newPool(4<<20, n, unexpected.EagerCost(256))
	for i := busy; i < n; i++ { // not enough to be told
		for range accounts[i].window / 4 / unexpected.RecordCost {
			require.True(t, b.receive(&accounts[i], unexpected.RecordCost))
			require.False(t, b.consume(&accounts[i], unexpected.RecordCost))
		}
	}
	for range 100 {
		for i := range busy {
			b.busy(&accounts[i], unexpected.RecordCost)
		}
	}
	require.Greater(t, accounts[0].window, 4*accounts[0].initial)
	for i := busy; i < n; i++ {
		require.True(t, b.receive(&accounts[i], unexpected.RecordCost))
		require.True(t, b.consume(&accounts[i], unexpected.RecordCost))
		require.True(t, b.renew(&accounts[i]))
		require.Equal(t, accounts[i].consumed+accounts[i].initial, accounts[i].told)
		require.LessOrEqual(t, b.committed, b.limit)
	}
}

// naivePool recomputes what a pool counts.
type naivePool struct {
	pool     *pool
	accounts []account
	kept     [][]uint64 // costs of messages
	lost     []bool
	asked    bool // some peer may have sent more than its credit
}

func (p *naivePool) check(t *rapid.T) {
	committed := int64(0)
	for i := range p.accounts {
		a, kept := &p.accounts[i], uint64(0)
		for _, cost := range p.kept[i] {
			kept += cost
		}
		require.Equal(t, kept, a.received-a.consumed)
		if p.lost[i] {
			committed += int64(kept)
			continue
		}
		require.GreaterOrEqual(t, a.window, a.initial)
		require.True(t, a.excess || a.received <= a.told)
		may := kept
		if a.told > a.received {
			may += a.told - a.received
		}
		committed += int64(max(may, a.initial)) // the initial window stays reserved
	}
	require.Equal(t, committed, p.pool.committed)
	if !p.asked {
		require.LessOrEqual(t, committed, p.pool.limit)
	}
}

func (p *naivePool) renew(t *rapid.T, i int) {
	a := &p.accounts[i]
	before := a.told
	require.Equal(t, p.pool.renew(a), a.told > before)
}

func (p *naivePool) receive(t *rapid.T, i int, cost uint64) {
	a := &p.accounts[i]
	may := a.received+cost <= a.told || a.excess
	require.Equal(t, may, p.pool.receive(a, cost))
	if !may {
		p.pool.close(a)
		p.lost[i] = true
		return
	}
	if rapid.Bool().Draw(t, "kept") {
		p.kept[i] = append(p.kept[i], cost)
		if a.short() && p.pool.grow(a) {
			p.renew(t, i)
		}
	} else if p.pool.consume(a, cost) {
		p.renew(t, i)
	}
}

// Whatever peers and receives do, and in which order, the pool knows what is committed, and no more
// than its limit is unless it was asked for.
func TestPoolAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "peers")
		limit := rapid.SampledFrom([]int64{0, 1, 2048, 64 << 10, 256 << 10, 4 << 20}).Draw(t, "limit")
		largest := unexpected.EagerCost(rapid.SampledFrom([]int{0, 256, 8192}).Draw(t, "eager limit"))
		p := &naivePool{kept: make([][]uint64, n), lost: make([]bool, n)}
		p.pool, p.accounts = newPool(limit, n, largest)
		peer := func(t *rapid.T) int {
			i := rapid.IntRange(0, n-1).Draw(t, "peer")
			if p.lost[i] {
				t.Skip("lost")
			}
			return i
		}
		t.Repeat(map[string]func(*rapid.T){
			"": p.check,
			"receive": func(t *rapid.T) {
				i := peer(t)
				cost := min(rapid.SampledFrom([]uint64{unexpected.RecordCost, 320, 1280, largest}).Draw(t, "cost"), largest)
				for range rapid.IntRange(1, 50).Draw(t, "count") {
					a := &p.accounts[i]
					if a.received+cost > a.told && !a.excess && rapid.IntRange(0, 99).Draw(t, "wrong") != 0 || p.lost[i] {
						return // without credit a peer waits
					}
					p.receive(t, i, cost)
				}
			},
			"consume": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "peer")
				for range min(len(p.kept[i]), rapid.IntRange(1, 50).Draw(t, "count")) {
					cost := p.kept[i][0]
					p.kept[i] = p.kept[i][1:]
					if p.pool.consume(&p.accounts[i], cost) && !p.lost[i] {
						p.renew(t, i)
					}
				}
			},
			"held up": func(t *rapid.T) {
				if i := peer(t); p.pool.grow(&p.accounts[i]) {
					p.renew(t, i)
				}
			},
			"asked": func(t *rapid.T) {
				a := &p.accounts[peer(t)]
				a.excess = rapid.IntRange(0, 9).Draw(t, "asked") == 0 || a.excess && a.received > a.told
				p.asked = p.asked || a.excess
			},
			"lost": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					i := peer(t)
					p.pool.close(&p.accounts[i])
					p.lost[i] = true
				}
			},
		})
	})
}
