// Package wait has the goroutines of an engine wait: who polls, who sleeps, and who wakes whom. It
// owns the engine's lock, the poller role, the parked waiters, the progress goroutine and the
// timers that end a sleep, and decides when a waiter yields its processor. It knows no message,
// peer or protocol.
//
// One waiter at a time has the poller role; it polls for all. The others watch their own operation
// for a moment, take the role if it becomes free, and park. Whoever leaves the role wakes a parked
// waiter, its successor, to take it over, and whoever was parked and leaves does the same if the
// role is free: so the role cannot get lost with a waiter that did not need it. A poller whose
// budget is used up parks as well. Then the progress goroutine sleeps in the transport for
// everybody, or, in Manual mode, the poller itself does and keeps the role.
//
// With GOMAXPROCS 1 a poller also steps aside at times, so that the Go scheduler looks for the
// sockets that other goroutines wait for (aside.go).
//
//	engine ──► Set         Await, StepAside, Done, End, Retry      with the lock held
//	engine ──► Set         Start, Stop, Share                      with the lock held
//	engine ──► Lock        Lock, TryLock, Unlock                   without it
//	Set    ──► Engine      Poll, Refused, Broken, Fail             with the lock held
//	Set    ──► Transport   Arm, Disarm with the lock held, Wait without it, Wake either way
//	Set    ──► Operation   InFlight                                with the lock held
//	engine ──► Watch       Link, Unlink                            with the lock held
//	Event  ──► Watcher     Over                                    with the lock held
//
// An operation embeds an Event, which reports whether it has ended. The engine ends it by Set.End,
// mostly from within Poll; whoever takes its outcome afterwards, by Event.Take, needs no lock. Who
// is to be told of ends without waiting for each, as a queue of completions is, links a Watch to
// the Event; Event.Give takes the outcome away from all others.
//
// Concurrency: every method of a Set needs the lock, except those that say that they take it. Await
// and Stop let go of it meanwhile, and so of all that it guards.
//
// progress/models/role.pml is this as a model, of which every state is searched; park.pml there is
// what happens below Arm, Wait and Wake.
package wait
