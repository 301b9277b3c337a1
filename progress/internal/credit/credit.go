package credit

const (
	// initialWindow is that of a peer at the start, while there is enough for it.
	initialWindow = 256 << 10

	// early is how many peers share at first what the initial windows have beyond what is kept for
	// each peer: each takes so much less of what is left that nobody need know how many will come.
	early = 64

	// leastGrowth is the smallest piece that a window grows by, unless one message needs less.
	leastGrowth = 4 << 10
)

// Pool is the memory for unexpected messages of all peers together. All is in bytes.
type Pool struct {
	limit     int64
	committed int64  // the sum of Committed of all accounts; beyond limit only by excess
	share     uint64 // of the initial window of each peer: a quarter of the limit, divided among all
	spare     uint64 // what initial windows may have beyond that, another quarter at first
	later     int    // peers whose account was never open, for each of which share is kept
	least     uint64 // the smallest message
	step      uint64 // two of the largest message: less of a window is not worth having
}

// Account is one peer's part of the pool. The counts are in bytes since the start.
type Account struct {
	pool     *Pool
	initial  uint64 // window that it never falls below, 0 while not open and once closed
	window   uint64 // what the peer may have here or under way
	charged  uint64 // by the peer's messages; at most granted unless in excess
	consumed uint64 // of those, what left our memory
	granted  uint64 // what the peer may charge in all, as it was last told
	excess   bool   // the peer may charge more than that: WANTs told it to
	opened   bool   // Open was called
}

// NewPool divides limit bytes among so many peers. The smallest message costs least, the largest
// one largest.
func NewPool(limit int64, peers int, least, largest uint64) *Pool {
	quarter := uint64(max(limit, 0)) / 4
	return &Pool{limit: max(limit, 0), share: quarter / uint64(peers), spare: quarter, later: peers, least: least, step: 2 * largest}
}

// Committed is what the messages of all peers take, and what they may still send.
func (b *Pool) Committed() int64 { return b.committed }

// free is what the pool can give: what is kept for peers that come later is left to them.
func (b *Pool) free() int64 {
	return max(b.limit-b.committed-int64(b.share)*int64(b.later), 0)
}

// Account returns the account of a peer that has no credit yet. It is not copied once it is in use.
func (b *Pool) Account() Account { return Account{pool: b} }

// Open gives the peer its first credit, which it returns: initialWindow, or what the pool can give
// now, at least a message. It is called once, and not after Close.
func (a *Account) Open() uint64 {
	b := a.pool
	window := min(b.share+b.spare/uint64(max(1, min(b.later, early))), initialWindow)
	b.spare -= window - min(window, b.share)
	b.later--
	window = min(max(window, b.least), uint64(b.free()))
	b.committed += int64(window)
	a.opened = true
	a.initial, a.window, a.granted = window, window, window
	return window
}

// Committed is what the peer's messages take, and what it may still send. The initial window is
// kept for it even while it has not been told of all that was consumed: others would grow into it.
func (a *Account) Committed() int64 {
	return int64(max(max(a.granted, a.charged)-a.consumed, a.initial))
}

// Granted is what the peer may charge in all.
func (a *Account) Granted() uint64 { return a.granted }

// Usage is what the peer has charged in all, what of that has left our memory, and its window.
func (a *Account) Usage() (charged, consumed, window uint64) { return a.charged, a.consumed, a.window }

// Charge charges a message; false means that the peer had no credit for it, and that it must not be
// kept.
func (a *Account) Charge(cost uint64) bool {
	if a.charged+cost <= a.granted {
		a.charged += cost
		return true
	}
	return a.chargeExcess(cost)
}

func (a *Account) chargeExcess(cost uint64) bool {
	before := a.Committed()
	a.charged += cost
	a.pool.committed += a.Committed() - before
	if !a.excess {
		a.Consume(cost) // it is not kept
	}
	return a.excess
}

// Consume gives cost back to the pool, and reports whether the peer should be told.
func (a *Account) Consume(cost uint64) (due bool) {
	if int64(max(a.granted, a.charged)-a.consumed) > int64(a.initial) { // else Committed stays what it is
		a.shrink(int64(cost))
	}
	a.consumed += cost
	return int64(a.consumed+a.window-a.granted) > int64(a.window/4)
}

// shrink takes cost of what the peer has beyond the initial window out of the pool.
func (a *Account) shrink(cost int64) {
	before := a.Committed()
	a.pool.committed += max(before-cost, int64(a.initial)) - before
}

// Renew grants the peer what its window has room for, and reports whether that is more than before.
func (a *Account) Renew() bool {
	b := a.pool
	free, before := b.free(), a.Committed()
	if extra := int64(a.window - a.initial); extra > free {
		a.window -= uint64(extra-free+1) / 2
	}
	granted := a.consumed + min(a.window, uint64(before+free))
	if int64(granted-a.granted) <= 0 {
		return false
	}
	a.granted = granted
	b.committed += a.Committed() - before
	return true
}

// Short reports whether the peer has less credit left than a quarter of its window.
func (a *Account) Short() bool { return int64(a.granted-a.charged) < int64(max(a.window/4, 1)) }

// Grow widens the window of a peer that has run out, if the pool allows. One that could send any
// message does not need it.
func (a *Account) Grow() bool {
	b := a.pool
	if !a.Short() && int64(a.granted-a.charged) >= int64(b.step/2) {
		return false
	}
	free, extra := b.free(), int64(a.window-a.initial)
	step := min(int64(max(a.window, b.step)), (free-extra)/2)
	if step < leastGrowth {
		return false
	}
	a.window += uint64(step)
	return true
}

// AllowExcess follows a WANT for a message of the peer, whatever its credit.
func (a *Account) AllowExcess() { a.excess = true }

// EndExcess takes that back from a peer that has charged so much in all, unless that is beyond its
// credit: then messages that WANTs were for may be under way.
func (a *Account) EndExcess(charged uint64) { a.excess = a.excess && charged > a.granted }

// Close ends the account of a peer that is lost: what it may still send is not needed any more.
// What is kept of it is still to be consumed.
func (a *Account) Close() {
	if !a.opened {
		a.pool.later--
	}
	a.pool.committed -= a.Committed()
	a.window, a.granted, a.initial = 0, min(a.granted, a.charged), 0
	a.pool.committed += a.Committed()
}
