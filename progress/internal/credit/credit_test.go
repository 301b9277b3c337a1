package credit

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// record is what a request costs, and what each message costs beside its bytes.
const record = 256

func eager(bytes uint64) uint64 { return record + bytes }

// newPool is a pool with its accounts open.
func newPool(limit int64, n int, largest uint64) (*Pool, []Account) {
	b, accounts := NewPool(limit, n, record, largest), make([]Account, n)
	for i := range accounts {
		accounts[i] = b.Account()
		accounts[i].Open()
	}
	return b, accounts
}

// busy lets the peer send all it may and then takes it in, as the engine does.
func (a *Account) busy(cost uint64) {
	n := 0
	for ; a.charged+cost <= a.granted; n++ {
		a.Charge(cost)
		if a.Short() && a.Grow() {
			a.Renew()
		}
	}
	for range n {
		if a.Consume(cost) {
			a.Renew()
		}
	}
}

// Windows follow use: one busy peer gets half of the pool, two a third each, and they give way to
// each other.
func TestPoolShares(t *testing.T) {
	const n, limit = 16, 16 << 20
	b, accounts := newPool(limit, n, eager(4096))
	initial := accounts[0].initial
	spare := float64(limit - n*int64(initial))
	for _, active := range [][]int{{0}, {0, 1}, {0, 1, 2}, {3, 4, 5}} {
		for range 100 {
			for _, i := range active {
				accounts[i].busy(eager(1000))
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
	accounts[0].busy(eager(1000))
	accounts[0].busy(eager(1000))
	require.Less(t, accounts[0].window, before)
}

// A peer that keeps within its window never gets a larger one, and one whose messages stay here
// gets no more than half.
func TestPoolGrowsForNeed(t *testing.T) {
	b, accounts := newPool(1<<20, 4, eager(256))
	a := &accounts[0]
	for range 10000 {
		require.True(t, a.Charge(eager(8)))
		require.False(t, a.Short())
		require.False(t, a.Grow())
		if a.Consume(eager(8)) {
			require.True(t, a.Renew())
		}
	}
	require.Equal(t, a.initial, a.window)
	kept := int64(0)
	for a.Charge(eager(8)) {
		kept += int64(eager(8))
		if a.Short() && a.Grow() {
			require.True(t, a.Renew())
		}
	}
	require.InEpsilon(t, float64(a.initial)+float64(b.limit-4*int64(a.initial))/2, float64(kept), 0.05)
	require.LessOrEqual(t, b.committed, b.limit)
}

// With nothing to give a peer has no credit, and what it sends for a WANT goes through.
func TestPoolOfNothing(t *testing.T) {
	for _, limit := range []int64{-1, 0} {
		b, accounts := newPool(limit, 2, eager(256))
		a := &accounts[0]
		require.Zero(t, a.window)
		require.False(t, a.Grow())
		require.False(t, a.Renew())
		a.excess = true
		for i := range uint64(100) {
			require.True(t, a.Charge(record))
			require.EqualValues(t, record, b.committed)
			require.True(t, a.Consume(record))
			require.True(t, a.Renew())
			require.Equal(t, (i+1)*record, a.granted, "what it has sent, and no more")
			require.False(t, a.Grow())
		}
		require.Zero(t, b.committed)
		a.excess = false
		require.False(t, a.Charge(record))
		require.Zero(t, b.committed, "it is not kept")
	}
}

// Many ranks share what there is: half of it is theirs from the start, the rest is for those who
// need it.
func TestPoolOfManyPeers(t *testing.T) {
	const n = 10000
	b, accounts := newPool(64<<20, n, eager(8192))
	require.LessOrEqual(t, b.committed, b.limit/2)
	require.EqualValues(t, initialWindow, accounts[0].window, "who comes first")
	require.GreaterOrEqual(t, accounts[n-1].window, uint64(64<<20/4/n))
	for range 30 {
		accounts[n-1].busy(eager(8192)) // more than its window
		if accounts[n-1].Grow() {       // so it is held up
			accounts[n-1].Renew()
		}
	}
	require.Greater(t, accounts[n-1].window, uint64(10<<20))
	for i := range accounts {
		accounts[i].busy(record)
		require.LessOrEqual(t, b.committed, b.limit)
	}
	for i := range accounts {
		accounts[i].Close()
	}
	require.Zero(t, b.committed)
}

// What a peer has not been told of its initial window is not for others: it can always be told.
func TestPoolKeepsInitialWindows(t *testing.T) {
	const n, busy = 64, 8
	b, accounts := newPool(4<<20, n, eager(256))
	for i := busy; i < n; i++ { // not enough to be told
		for range accounts[i].window / 4 / record {
			require.True(t, accounts[i].Charge(record))
			require.False(t, accounts[i].Consume(record))
		}
	}
	for range 100 {
		for i := range busy {
			accounts[i].busy(record)
		}
	}
	require.Greater(t, accounts[0].window, 4*accounts[0].initial)
	for i := busy; i < n; i++ {
		require.True(t, accounts[i].Charge(record))
		require.True(t, accounts[i].Consume(record))
		require.True(t, accounts[i].Renew())
		require.Equal(t, accounts[i].consumed+accounts[i].initial, accounts[i].granted)
		require.LessOrEqual(t, b.committed, b.limit)
	}
}

// What is kept for those that come later is not for others, however busy these are; until it is
// known that they do not come.
func TestPoolKeepsForLater(t *testing.T) {
	const n, limit = 64, 4 << 20
	b, accounts := NewPool(limit, n, record, eager(256)), make([]Account, n)
	for i := range accounts {
		accounts[i] = b.Account()
	}
	for i := range n / 2 {
		require.GreaterOrEqual(t, accounts[i].Open(), uint64(limit/4/n))
		for a := &accounts[i]; a.Charge(record); { // all stays here
			if a.Short() && a.Grow() {
				a.Renew()
			}
		}
		require.LessOrEqual(t, b.committed+limit/4/n*int64(n-1-i), b.limit)
	}
	require.Less(t, b.free(), int64(leastGrowth*4))
	for i := n / 2; i < n; i++ {
		accounts[i].Close()
	}
	require.GreaterOrEqual(t, b.free(), int64(limit/4/2))
}

// naivePool recomputes what a pool counts.
type naivePool struct {
	pool     *Pool
	accounts []Account
	open     []bool
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
		require.Equal(t, kept, a.charged-a.consumed)
		if !p.open[i] {
			require.Zero(t, a.Committed())
			continue
		}
		if p.lost[i] {
			committed += int64(kept)
			continue
		}
		require.GreaterOrEqual(t, a.window, a.initial)
		require.True(t, a.excess || a.charged <= a.granted)
		may := kept
		if a.granted > a.charged {
			may += a.granted - a.charged
		}
		committed += int64(max(may, a.initial)) // the initial window stays reserved
	}
	require.Equal(t, committed, p.pool.committed)
	if !p.asked {
		require.LessOrEqual(t, committed+p.keptForLater(), p.pool.limit)
	}
}

// keptForLater is what nobody has but those that come later.
func (p *naivePool) keptForLater() (bytes int64) {
	for i := range p.accounts {
		if !p.open[i] && !p.lost[i] {
			bytes += p.pool.limit / 4 / int64(len(p.accounts))
		}
	}
	return bytes
}

func (p *naivePool) renew(t *rapid.T, i int) {
	a := &p.accounts[i]
	before := a.granted
	require.Equal(t, a.Renew(), a.granted > before)
}

func (p *naivePool) charge(t *rapid.T, i int, cost uint64) {
	a := &p.accounts[i]
	may := a.charged+cost <= a.granted || a.excess
	require.Equal(t, may, a.Charge(cost))
	if !may {
		a.Close()
		p.lost[i] = true
		return
	}
	if rapid.Bool().Draw(t, "kept") {
		p.kept[i] = append(p.kept[i], cost)
		if a.Short() && a.Grow() {
			p.renew(t, i)
		}
	} else if a.Consume(cost) {
		p.renew(t, i)
	}
}

// Whatever peers and receives do, and in which order, the pool knows what is committed, and no more
// than its limit is unless WANTs were sent.
func TestPoolAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "peers")
		limit := rapid.SampledFrom([]int64{0, 1, 2048, 64 << 10, 256 << 10, 4 << 20}).Draw(t, "limit")
		largest := eager(rapid.SampledFrom([]uint64{0, 256, 8192}).Draw(t, "eager limit"))
		p := &naivePool{open: make([]bool, n), kept: make([][]uint64, n), lost: make([]bool, n), pool: NewPool(limit, n, record, largest)}
		for range n {
			p.accounts = append(p.accounts, p.pool.Account())
		}
		peer := func(t *rapid.T) int {
			i := rapid.IntRange(0, n-1).Draw(t, "peer")
			if p.lost[i] {
				t.Skip("lost")
			}
			if !p.open[i] { // with what the others have left
				p.open[i] = true
				free := p.pool.limit - p.pool.committed - p.keptForLater()
				window := p.accounts[i].Open()
				require.Equal(t, window, p.accounts[i].granted)
				require.True(t, window >= record || int64(window) >= free, "%d of %d", window, free)
				require.LessOrEqual(t, int64(window), max(free, 0))
			}
			return i
		}
		t.Repeat(map[string]func(*rapid.T){
			"": p.check,
			"charge": func(t *rapid.T) {
				i := peer(t)
				cost := min(rapid.SampledFrom([]uint64{record, 320, 1280, largest}).Draw(t, "cost"), largest)
				for range rapid.IntRange(1, 50).Draw(t, "count") {
					a := &p.accounts[i]
					if a.charged+cost > a.granted && !a.excess && rapid.IntRange(0, 99).Draw(t, "wrong") != 0 || p.lost[i] {
						return // without credit a peer waits
					}
					p.charge(t, i, cost)
				}
			},
			"consume": func(t *rapid.T) {
				i := rapid.IntRange(0, n-1).Draw(t, "peer")
				for range min(len(p.kept[i]), rapid.IntRange(1, 50).Draw(t, "count")) {
					cost := p.kept[i][0]
					p.kept[i] = p.kept[i][1:]
					if p.accounts[i].Consume(cost) && !p.lost[i] {
						p.renew(t, i)
					}
				}
			},
			"held up": func(t *rapid.T) {
				if i := peer(t); p.accounts[i].Grow() {
					p.renew(t, i)
				}
			},
			"asked": func(t *rapid.T) {
				a := &p.accounts[peer(t)]
				a.excess = rapid.IntRange(0, 9).Draw(t, "asked") == 0 || a.excess && a.charged > a.granted
				p.asked = p.asked || a.excess
			},
			"lost": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
					i := rapid.IntRange(0, n-1).Draw(t, "peer") // perhaps one that was never connected
					if p.lost[i] {
						t.Skip("lost")
					}
					p.accounts[i].Close()
					p.lost[i] = true
				}
			},
		})
	})
}
