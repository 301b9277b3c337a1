package wait

import (
	"fmt"
	"io"
	"runtime"
	"time"
)

// Sharing processors. A waiter with a processor of its own polls without a pause. Where ranks, or
// others, want its processor it must offer it between polls: the rank that has the message may be
// one of them. That is right among processes that wait for messages themselves and give the
// processor back in microseconds. Who computes keeps it for a whole slice of milliseconds; there an
// offer costs more than being woken, and a waiter parks without one.

const (
	offerTaken = 2 * time.Microsecond   // an offer that takes so long was taken by another thread
	offerLate  = 500 * time.Microsecond // so long, by one that computes; see late
	loadWaits  = 64                     // waits for which what an offer has shown is believed
)

// load is what the last offers of the processor have shown.
type load uint8

const (
	loadNone   load = iota // offers end at once
	loadShared             // others take the processor, and give it back soon
	loadLate               // others take it and keep it
)

func (l load) String() string {
	return [...]string{"", ", and others take them at times", ", and others keep them for long"}[l]
}

// sharing is who else wants the processors of this rank, as far as is known. Guarded by Set.mu.
type sharing struct {
	ranks, processors int // ranks that share these processors, this one included, and how many there are; 0: not known
	procs             int // GOMAXPROCS
	load              load
	waits             int // for how many more waits load is believed
}

// crowded tells whether there are too few processors: at any time some rank that could send waits
// for one.
func (n *sharing) crowded() bool { return n.ranks > n.processors }

// waited is called at each wait that its first polls do not end.
func (n *sharing) waited() {
	if n.waits > 0 {
		n.waits--
		return
	}
	n.load = loadNone
}

// late is how long an offer takes that somebody who computes has taken. In a crowd an offer comes
// back after all others on this processor have polled in their turn.
func (n *sharing) late() time.Duration {
	if n.crowded() {
		return offerLate * time.Duration(n.ranks/max(1, n.processors))
	}
	return offerLate
}

// offered takes down how long an offer took. That somebody keeps the processor outweighs that
// others give it back.
func (n *sharing) offered(took time.Duration) {
	switch {
	case took >= n.late():
		n.load, n.waits = loadLate, loadWaits
	case took >= offerTaken && n.load != loadLate:
		n.load, n.waits = loadShared, loadWaits
	}
}

// policy is how a waiter polls before it parks.
type policy struct {
	hold   int           // polls before the first look at a clock
	polls  int           // polls of a round, between two looks at the clock and the context
	rounds int           // how many rounds at least; unlike time, others do not use them up
	budget time.Duration // how long at least
	offers bool          // the processor is offered at times, at the end of a round:
	keep   time.Duration // after polling so long for the first time,
	every  time.Duration // and so long after the one before
}

// policy decides by the limit that was set (0: none), whether other goroutines of this process
// want to run, how long a large message on its way is to be watched (0: there is none), and who
// else wants the processor. With GOMAXPROCS 1 the peer may have a processor of its own, then parking too early is
// dear, or share this one, then it cannot run while this rank polls. Offering it costs little in
// the first case and is all that helps in the second. Who moves a large message has use for its
// processor, and shares it only where there are too few.
func (n *sharing) policy(limit time.Duration, runnable bool, transfer time.Duration) policy {
	share := n.crowded() || n.procs == 1 || n.load == loadShared && transfer == 0
	dear := share && n.load == loadLate
	m := policy{hold: holdPolls, polls: clockPolls, budget: limit, offers: !dear}
	if share || limit < 0 {
		m.hold = clockPolls
	}
	if n.crowded() && limit >= 0 {
		m.hold, m.polls = sharePolls, sharePolls
	}
	switch {
	case limit != 0:
	case runnable || dear:
		m.budget = spinBusy
	case share:
		m.rounds = shareRounds
	default:
		m.budget = spinMax
	}
	if runnable || !share {
		m.keep, m.every = m.budget+spinOffer, spinOffer
	}
	if !dear {
		m.budget += transfer
	}
	return m
}

// Share says how many ranks, this one included, share the processors that this one may use, and how
// many processors those are. A rank that shares them offers its processor while it waits. To be
// called before Start; without it a rank takes it that there are enough.
func (s *Set) Share(ranks, processors int) {
	s.sharing.ranks, s.sharing.processors = ranks, processors
	s.survey()
}

// survey looks again at what the first polls of a wait go by.
func (s *Set) survey() {
	s.sharing.procs = runtime.GOMAXPROCS(0)
	s.oneP = s.sharing.procs == 1
	s.hold = s.sharing.policy(s.cfg.SpinLimit, false, 0).hold
}

// Dump writes what is known of those that share the processors, for people.
func (s *Set) Dump(out io.Writer) {
	if n := &s.sharing; n.processors > 0 {
		fmt.Fprintf(out, "ranks that share its processors: %d on %d%v\n", n.ranks, n.processors, n.load)
	}
}

// offer offers the processor to other processes.
func (s *Set) offer() {
	s.mu.Unlock()
	took := s.yield()
	s.mu.Lock()
	s.sharing.offered(took)
}

// timedYield offers the processor, and returns how long that took.
func timedYield() time.Duration {
	start := time.Now()
	yieldProcessor()
	return time.Since(start)
}
