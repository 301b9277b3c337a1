package progress

// Every tagged message is charged to its sender's credit with what it costs the receiver to keep: a
// record, and for an eager message the bytes. Credit is a count of bytes that only grows: a sender
// may have charged, in all, what the receiver has allowed, in all, so that a later grant replaces
// an earlier one. The receiver allows what has left its memory plus a window for each peer, and the
// windows come out of one pool, Config.UnexpectedLimit.
//
// A window is small for a peer that has never needed more, and doubles when its peer runs out, as
// long as what it has beyond the initial one is at most what is left of the pool. It shrinks by the
// same rule when messages of its peer are consumed. So one busy peer gets half of the pool, two a
// third each, and there is always something left for the next.
//
// What happens to a sender without credit is in outgoing.go, and how the bound yields to a receive
// in incoming.go.

const (
	// initialWindow is that of a peer never heard of, unless half of the pool is less for all of
	// them.
	initialWindow = 256 << 10

	// leastGrowth is the smallest piece that a window grows by, unless one message needs less.
	leastGrowth = 4 << 10
)

// pool is the receiver's memory for unexpected messages.
type pool struct {
	limit     int64
	committed int64 // what messages take, and what their senders may still send
	step      uint64
}

// account is one peer's part of the pool. The counts are in bytes since the start.
type account struct {
	initial  uint64 // window that the address told
	window   uint64 // what the peer may have here or under way
	received uint64 // charged by the peer's messages
	consumed uint64 // of those that left our memory
	told     uint64 // what the peer was last allowed
	excess   bool   // the peer may send more than that: it was asked to, see incoming.go
}

// init prepares the pool for n peers. The largest message costs largest.
func (b *pool) init(limit int64, n int, largest uint64) (initial uint64) {
	b.limit = max(limit, 0)
	b.step = 2 * largest
	return min(initialWindow, uint64(b.limit)/2/uint64(n))
}

func (b *pool) open(a *account, initial uint64) {
	*a = account{initial: initial, window: initial, told: initial}
	b.committed += int64(initial)
}

// held is what the peer's messages take, and what it may still send. The initial window is kept for
// it even while it has not been told of all that was consumed: others would grow into it.
func (a *account) held() int64 { return int64(max(max(a.told, a.received)-a.consumed, a.initial)) }

// receive charges a message; false means that the peer had no credit for it.
func (b *pool) receive(a *account, cost uint64) bool {
	if a.received+cost <= a.told {
		a.received += cost
		return true
	}
	before := a.held()
	a.received += cost
	b.committed += a.held() - before
	if !a.excess {
		b.consume(a, cost) // it is not kept
	}
	return a.excess
}

// consume gives cost back to the pool, and reports whether the peer should be told.
func (b *pool) consume(a *account, cost uint64) (due bool) {
	before := a.held()
	a.consumed += cost
	b.committed += a.held() - before
	return int64(a.consumed+a.window-a.told) > int64(a.window/4)
}

// renew allows the peer what its window has room for, and reports whether that is more than before.
func (b *pool) renew(a *account) bool {
	free, before := max(b.limit-b.committed, 0), a.held()
	if extra := int64(a.window - a.initial); extra > free {
		a.window -= uint64(extra-free+1) / 2
	}
	allowed := a.consumed + min(a.window, uint64(before+free))
	if int64(allowed-a.told) <= 0 {
		return false
	}
	a.told = allowed
	b.committed += a.held() - before
	return true
}

// short tells whether the peer has less credit left than a quarter of its window.
func (a *account) short() bool { return int64(a.told-a.received) < int64(max(a.window/4, 1)) }

// grow widens the window of a peer that has run out, if the pool allows. One that could send any
// message does not need it.
func (b *pool) grow(a *account) bool {
	if !a.short() && int64(a.told-a.received) >= int64(b.step/2) {
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

// close ends the account of a peer that is lost: what it may still send is not needed any more.
func (b *pool) close(a *account) {
	b.committed -= a.held()
	a.window, a.told, a.initial = 0, min(a.told, a.received), 0
	b.committed += a.held()
}
