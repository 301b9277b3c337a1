package credit

const (
	// initialWindow is that of a peer never heard of, unless half of the pool is less for all of
	// them.
	initialWindow = 256 << 10

	// leastGrowth is the smallest piece that a window grows by, unless one message needs less.
	leastGrowth = 4 << 10
)

// Pool is the memory for unexpected messages of all peers together. All is in bytes.
type Pool struct {
	limit     int64
	committed int64  // the sum of Committed of all accounts; beyond limit only by excess
	initial   uint64 // window of each account at the start
	step      uint64 // two of the largest message: less of a window is not worth having
}

// Account is one peer's part of the pool. The counts are in bytes since the start.
type Account struct {
	pool     *Pool
	initial  uint64 // window that it never falls below, 0 once closed
	window   uint64 // what the peer may have here or under way
	charged  uint64 // by the peer's messages; at most granted unless in excess
	consumed uint64 // of those, what left our memory
	granted  uint64 // what the peer may charge in all, as it was last told
	excess   bool   // the peer may charge more than that: WANTs told it to
}

// NewPool divides limit bytes among so many peers. The largest message costs largest.
func NewPool(limit int64, peers int, largest uint64) *Pool {
	limit = max(limit, 0)
	return &Pool{limit: limit, initial: min(initialWindow, uint64(limit)/2/uint64(peers)), step: 2 * largest}
}

// Initial is the credit of each peer at the start.
func (b *Pool) Initial() uint64 { return b.initial }

// Committed is what the messages of all peers take, and what they may still send.
func (b *Pool) Committed() int64 { return b.committed }

// Open returns the account of a peer at the start. It is not copied once it is in use.
func (b *Pool) Open() Account {
	b.committed += int64(b.initial)
	return Account{pool: b, initial: b.initial, window: b.initial, granted: b.initial}
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
	free, before := max(b.limit-b.committed, 0), a.Committed()
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
	free, extra := b.limit-b.committed, int64(a.window-a.initial)
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
	a.pool.committed -= a.Committed()
	a.window, a.granted, a.initial = 0, min(a.granted, a.charged), 0
	a.pool.committed += a.Committed()
}
