package wait

import (
	"fmt"
	"io"
	"runtime"
	"time"
)

// Sharing processors. A waiter with a processor of its own polls without a pause. Where ranks, or
// others, want its processor it must yield it between polls: the rank that has the message may be
// one of them. That is right among processes that wait for messages themselves and give the
// processor back in microseconds. Who computes keeps it for a whole slice of milliseconds; there a
// yield costs more than being woken, and so do polls, since who has used up its share of the time
// must wait for it to come again when a message arrives. A waiter soon parks: after microseconds,
// however long a poll takes.

const (
	yieldTaken = 2 * time.Microsecond   // a yield that takes so long has let another thread run
	yieldLate  = 500 * time.Microsecond // so long, by one that computes; see late
	loadWaits  = 64                     // waits for which it is believed that others take turns
	loadTimes  = 64                     // times as long as a yield took it is believed that somebody computes
	loadMost   = time.Second            // but no longer: this process may have been stopped in a yield
)

// load is what the last yields have shown.
type load uint8

const (
	loadNone  load = iota // yields return at once
	loadBrief             // others take the processor for microseconds
	loadLong              // others take it and keep it
)

func (l load) String() string {
	return [...]string{"", ", and others take them at times", ", and others keep them for long"}[l]
}

// sharing is who else wants the processors of this rank, as far as is known. Guarded by Set.mu.
type sharing struct {
	ranks, processors int // ranks that share these processors, this one included, and how many there are; 0: not known
	procs             int // GOMAXPROCS
	load              load
	waits             int       // for how many more waits loadBrief is believed
	until             time.Time // until when loadLong is
}

// oversubscribed reports whether there are too few processors: at any time some rank that could
// send waits for one.
func (n *sharing) oversubscribed() bool { return n.ranks > n.processors }

// scarce reports whether the goroutines that the ranks may run at once are more than the
// processors.
func (n *sharing) scarce() bool { return n.ranks*n.procs > n.processors }

// waited forgets load after so many waits, or after so long.
func (n *sharing) waited(now time.Time) {
	switch {
	case n.load == loadLong && now.Before(n.until):
	case n.load == loadBrief && n.waits > 0:
		n.waits--
	default:
		n.load = loadNone
	}
}

// late is how long a yield takes that lets somebody run who computes. Where there are too few
// processors a yield returns after all others on this processor have polled in their turn.
func (n *sharing) late() time.Duration {
	if n.oversubscribed() {
		return yieldLate * time.Duration(n.ranks/max(1, n.processors))
	}
	return yieldLate
}

// yielded takes down how long a yield took that has ended now. That somebody keeps the processor
// outweighs that others return it.
func (n *sharing) yielded(took time.Duration, now time.Time) {
	switch {
	case took >= n.late():
		n.load, n.until = loadLong, now.Add(min(loadTimes*took, loadMost))
	case took >= yieldTaken && n.load != loadLong:
		n.load, n.waits = loadBrief, loadWaits
	}
}

// policy is how a waiter polls before it parks.
type policy struct {
	hold   int           // polls before the first look at a clock
	polls  int           // polls of a round, between two looks at the clock and the context
	rounds int           // how many rounds at least; unlike time, others do not use them up
	budget time.Duration // how long at least
	yields bool          // the processor is yielded at times, at the end of a round:
	keep   time.Duration // after polling so long for the first time,
	every  time.Duration // and so long after the one before
}

// policy decides by the limit that was set (0: none), whether other goroutines of this process want
// to run, how long a large message on its way is to be watched (0: there is none), and who else
// wants the processor. With GOMAXPROCS 1 the peer may have a processor of its own, then parking too
// early is costly, or share this one, then it cannot run while this rank polls. Yielding it costs
// little in the first case and is all that helps in the second. Who moves a large message has use
// for its processor, and shares it only where there are too few. Beside one that computes a waiter
// soon parks.
func (n *sharing) policy(limit time.Duration, runnable bool, transfer time.Duration) policy {
	share := n.oversubscribed() || n.procs == 1 || n.load == loadBrief && transfer == 0
	m := policy{hold: holdPolls, polls: clockPolls, budget: limit, yields: true}
	if share || limit < 0 {
		m.hold = clockPolls
	}
	if n.oversubscribed() && limit >= 0 {
		m.polls = sharePolls
		if n.load == loadBrief {
			m.polls = takenPolls
		}
		m.hold = m.polls
	}
	switch {
	case n.load == loadLong:
		m.yields = false
		if limit == 0 {
			m.hold, m.polls, m.budget = takenPolls, takenPolls, spinKept
		}
		return m
	case limit != 0:
	case runnable:
		m.budget = spinBusy
	case share:
		m.rounds = shareRounds
	default:
		m.budget = spinMax
	}
	if runnable || !share {
		m.keep, m.every = m.budget+spinYield, spinYield
	}
	m.budget += transfer
	return m
}

// Share says how many ranks, this one included, share the processors that this one may use, and how
// many processors those are. A rank that shares them yields its processor while it waits. To be
// called before Start; without it a rank takes it that there are enough.
func (s *Set) Share(ranks, processors int) {
	s.sharing.ranks, s.sharing.processors = ranks, processors
	s.survey()
}

// survey looks again at what the first polls of a wait go by.
func (s *Set) survey() {
	s.sharing.procs = runtime.GOMAXPROCS(0)
	s.oneP = s.sharing.procs == 1
	s.turns = s.oneP || s.sharing.scarce()
	s.setHold()
}

// parksSoon reports whether a waiter polls for microseconds only, as somebody computes beside it.
func (s *Set) parksSoon() bool { return s.sharing.load == loadLong && s.cfg.SpinLimit == 0 }

func (s *Set) setHold() { s.hold = s.sharing.policy(s.cfg.SpinLimit, false, 0).hold }

// waited counts a wait that its first polls have not ended.
func (s *Set) waited() {
	var now time.Time
	if s.sharing.load == loadLong {
		now = time.Now()
	}
	s.sharing.waited(now)
	s.setHold()
}

// Dump writes what is known of those that share the processors, for people.
func (s *Set) Dump(out io.Writer) {
	if n := &s.sharing; n.processors > 0 {
		fmt.Fprintf(out, "ranks that share its processors: %d on %d%v\n", n.ranks, n.processors, n.load)
	}
}

// yieldOnce yields the processor to other processes.
func (s *Set) yieldOnce() {
	s.mu.Unlock()
	took := s.yield()
	s.mu.Lock()
	s.sharing.yielded(took, time.Now())
	s.setHold()
}

// timedYield yields the processor, and returns how long that took.
func timedYield() time.Duration {
	start := time.Now()
	yieldProcessor()
	return time.Since(start)
}
