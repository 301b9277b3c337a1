package wait

import (
	"runtime"
	"time"
)

// Calls that do not wait. A loop of those that find nothing waits as well, although it never parks:
// each call is one poll of an endless wait. So they share the processor by the policy of those who
// wait, and keep the progress goroutine from sleeping as these do. Where a waiter would park the
// loop begins its next turn.

// vainCalls is how many calls may find nothing before one lets other goroutines run. Else a loop
// would keep a processor until it is preempted, after 10 ms, from the goroutine that is to end it,
// which may wait for a socket. A yield to nobody takes about 150 ns.
const vainCalls = 16

// vain is guarded by Set.mu.
type vain struct {
	calls uint32 // so far
	polls int    // calls since the last round of the turn
	most  int    // calls of this round; 0: none has been made
	turn  turn
}

// Vain is for a call that does not wait, has polled and found nothing. At times it lets others run,
// and lets go of the lock meanwhile.
func (s *Set) Vain() {
	v := &s.vain
	v.calls++
	v.polls++
	if v.calls%vainCalls == 0 {
		s.letGoroutines()
	}
	if v.polls >= v.most {
		s.vainRound()
	}
}

// Outrun is for a call that does not wait and has found the lock taken, by somebody who polls. At
// times it lets others run, as Vain does. For that it takes the lock, as all other calls do each
// time: who polls gives way at the end of the poll that it is in.
func (s *Set) Outrun() {
	if s.outrun.Add(1)%vainCalls != 0 {
		return
	}
	s.mu.Lock()
	s.vain.polls += vainCalls
	s.letGoroutines()
	if s.vain.polls >= s.vain.most {
		s.vainRound()
	}
	s.mu.Unlock()
}

// letGoroutines lets other goroutines run, those that wait for sockets too, and has the progress
// goroutine see that somebody polls. That sleeps on if a waiter is parked, for which it would have
// to arm again at once.
func (s *Set) letGoroutines() {
	if s.parked.head == nil {
		s.disarm()
		s.loop.polls++
	}
	s.mu.Unlock()
	runtime.Gosched()
	s.mu.Lock()
	if s.oneP {
		s.stepAside(time.Now())
	}
}

// vainRound ends a round of calls.
func (s *Set) vainRound() {
	v := &s.vain
	p := s.sharing.policy(0, false, 0)
	s.endRound(&v.turn, &p)
	if v.turn.over(&p) {
		s.waited()
		s.survey()
		if s.sharing.load != loadLong || s.sharing.oversubscribed() {
			s.yieldOnce()
		}
		v.turn = newTurn(false)
	}
	v.polls, v.most = 0, s.sharing.policy(0, false, 0).polls
	if s.sharing.load == loadLong && !s.sharing.oversubscribed() {
		v.most = clockPolls // a waiter would park
	}
}
