/*
 * The poller role: goroutines of one engine that wait, each for its own operation. One polls for all; who polls, who sleeps, and
 * who wakes whom. progress/internal/wait.
 *
 * Check it, and the variants that must fail, by progress/models/check.sh.
 *
 * Processes
 *
 *   Waiter    WAITERS goroutines in await.go Await, awaitSlow, follow, spin, leaveRole, handOver, pass, and park.go park, parkOnChannel,
 *             sleep
 *   Progress  loop.go progress, attended, attend; absent with -DMANUAL (Config.Manual)
 *   Tester    a goroutine that polls now and then (Request.Test, Engine.Poll) and, where it finds nothing, says so (vain.go
 *             letGoroutines), or ends the first waiter's operation (Request.Cancel)
 *   Arrivals  the device: operation i's completion comes, or never does
 *   Context   ends the context of the first waiter, or does not; context.AfterFunc of wakeOn
 *
 * Everything but the looks of follow at atomics is under Set.mu: what is done under one hold of it is one step, as
 * far as nobody can see into it. The transport is what park.pml and notifier.pml show it to be: an arrival after Arm ends the
 * Wait under way or the next one, and so does Wake.
 *
 * What is left out: budgets (each spin ends at any time), the closing of an engine, and the tick. The progress goroutine looks
 * once a tick of 1 ms whether the engine is attended (loop.go rest); here the tick never comes, so that nobody who waits depends on it.
 *
 * Properties: where nothing more can happen, every waiter whose operation or context has ended has returned, and every completion
 * for which somebody waits was polled. Whoever has the role is the only one. At most one goroutine is in Transport.Wait.
 *
 * Variants that must fail
 *
 *   FAULT_NO_HANDOVER  who leaves with the role wakes nobody
 *   FAULT_NO_PASS      three waiters: who was woken to take the role, and leaves without it, wakes nobody
 *   FAULT_SUCCESSOR_STAYS  three waiters: who was woken to take the role, and could not, stays the successor
 *   FAULT_NO_LOOK      with MANUAL: no poll between Arm and Wait
 *   FAULT_SLEEPER_LATE with MANUAL: who is about to sleep says so after letting go of the lock, and another ends its operation before
 *   FAULT_NO_AFTERFUNC with MANUAL: the end of a context does not end Wait
 *   FAULT_KEEP_ROLE    a waiter parks on its channel with the role
 *   FAULT_NO_KICK      a waiter parks without telling the progress goroutine, while nobody polls
 *   FAULT_NO_WAKE      a poller disarms the transport and lets the progress goroutine sleep
 *   FAULT_PUSH_LATE    a waiter is on the list of the parked only after the lock was let go once
 */

#ifndef WAITERS
#define WAITERS 2
#endif
#define NONE 255

bool mu;
bool polling;
byte successor = NONE, sleeper = NONE;
chan parked = [WAITERS] of { byte };
bool registered[WAITERS]; /* Event.watches has its watch */
bool token[WAITERS];
bool arrived[WAITERS], ended[WAITERS], canceled[WAITERS], back[WAITERS];

/* Transport */
bool listening, wakeup;
byte inwait;

/* loopState; fresh: polls != seen */
bool armed, asleep, watching, fresh, kick;

/* Set.waking is not 0: somebody was woken and has not run yet */
#if WAITERS > 2
#define WAKING (token[0] || token[1] || token[2])
#else
#define WAKING (token[0] || token[1])
#endif

byte roles;                /* ghost: goroutines that have the role */

inline lock()   { atomic { !mu -> mu = 1 } }
inline unlock() { mu = 0 }

inline wake(w)
{
	if
	:: w == sleeper -> wakeup = 1
	:: else -> token[w] = 1
	fi
}

/* poll is Engine.Poll: what has arrived ends operations, and wakes who waits for them. */
inline poll(got)
{
	got = 0; k = 0;
	do
	:: k < WAITERS && arrived[k] ->
		arrived[k] = 0; ended[k] = 1; got = 1;
		if
		:: registered[k] -> wake(k)
		:: else
		fi;
		k++
	:: k < WAITERS && !arrived[k] -> k++
	:: k >= WAITERS -> break
	od;
	k = 0
}

inline disarm()
{
	if
	:: armed ->
		armed = 0; listening = 0;
#ifndef FAULT_NO_WAKE
		if
		:: asleep -> wakeup = 1
		:: else
		fi
#endif
	:: else
	fi
}

inline kickprogress()
{
	if
	:: watching -> watching = 0; kick = 1
	:: else
	fi
}

inline handover()
{
	if
	:: len(parked) > 0 && successor == NONE && !polling ->
		parked?<k>; successor = k; wake(k); k = 0
	:: else
	fi
}

inline acquire() { polling = 1; role = 1; roles++; assert(roles == 1) }
inline drop()    { polling = 0; role = 0; roles-- }

inline leave()
{
	drop(); fresh = 1;
#ifndef FAULT_NO_HANDOVER
	handover()
#endif
}

inline pass()
{
#ifndef FAULT_NO_PASS
	if
	:: len(parked) > 0 && !polling ->
#ifdef MANUAL
		handover()
#else
		kickprogress()
#endif
	:: else
	fi
#else
	skip
#endif
}

inline vain()
{
	if
	:: !got && len(parked) == 0 -> disarm(); fresh = 1
	:: else
	fi
}

#define DONE (ended[i])

proctype Waiter(byte i)
{
	byte k;
	bool role, got, fails;

	atomic { lock();
		if
		:: DONE -> goto out
		:: !DONE && polling
		:: !DONE && !polling -> acquire(); poll(got); got = 0;
			if
			:: DONE -> leave(); goto out
			:: else
			fi
		fi
	};
	do
	::
		if
		:: !role -> /* follow */
			unlock();
			if
			:: DONE || !polling
			:: skip
			fi;
			atomic { lock();
				if
				:: DONE || polling
				:: else -> acquire()
				fi
			}
		:: else
		fi;
		if
		:: role && !DONE -> /* spin */
			atomic {
				if
				:: disarm()
				:: skip /* who soon parks, as somebody computes beside it */
				fi;
				poll(got); got = 0
			};
			unlock(); /* gives way, yields */
			lock();
			atomic { poll(got); got = 0 }
		:: else
		fi;
		if
		:: !DONE && canceled[i] -> fails = 1
		:: !DONE && !canceled[i] -> /* park */
#ifdef MANUAL
			if
			:: role -> /* sleep */
				atomic {
					registered[i] = 1;
					listening = 1;
#ifndef FAULT_SLEEPER_LATE
					sleeper = i;
#endif
					got = 0;
#ifndef FAULT_NO_LOOK
					poll(got)
#endif
				};
				if
				:: !got && !DONE ->
					unlock();
#ifdef FAULT_SLEEPER_LATE
					sleeper = i;
#endif
					inwait++; assert(inwait == 1);
endsleep:
#ifndef FAULT_NO_AFTERFUNC
					atomic { (wakeup || canceled[i]) -> wakeup = 0; inwait-- };
#else
					atomic { wakeup -> wakeup = 0; inwait-- };
#endif
					lock()
				:: else
				fi;
				atomic { got = 0; sleeper = NONE; listening = 0; registered[i] = 0; token[i] = 0 }
			:: else ->
#endif
				atomic {
					registered[i] = 1;
					if
#if !defined(MANUAL) && !defined(FAULT_KEEP_ROLE)
					:: role -> drop()
#endif
					:: else
					fi;
#if !defined(MANUAL) && !defined(FAULT_NO_KICK)
					if
					:: !polling -> kickprogress()
					:: else
					fi;
#endif
#ifndef FAULT_PUSH_LATE
					parked!i
#endif
				};
				unlock();
#ifdef FAULT_PUSH_LATE
				lock(); parked!i; unlock();
#endif
endparked:
				(token[i] || canceled[i]);
				atomic { lock();
					parked??eval(i);
#ifndef FAULT_SUCCESSOR_STAYS
					if
					:: successor == i -> successor = NONE
					:: else
					fi;
#endif
					registered[i] = 0; token[i] = 0
				}
#ifdef MANUAL
			fi
#endif
		:: DONE
		fi;
		if
		:: fails || DONE ->
			atomic {
				fails = 0;
				if
				:: role -> leave()
				:: else -> pass()
				fi
			};
			break
		:: else
		fi
	od;
out:
	atomic { back[i] = 1; unlock() }
}

#ifndef MANUAL
active proctype Progress()
{
	byte k;
	bool got;
	lock();
	do
	:: polling || WAKING || (fresh && len(parked) == 0) -> /* attended */
		atomic {
			fresh = polling || WAKING;
			watching = 1
		};
		unlock();
end:
		atomic { kick -> kick = 0 };
		lock();
		watching = 0
	:: else -> /* attend */
		atomic { listening = 1; armed = 1; poll(got) };
		if
		:: !got ->
			asleep = 1;
			unlock();
			inwait++; assert(inwait == 1);
endwait:
			atomic { wakeup -> wakeup = 0; inwait-- };
			lock();
			asleep = 0
		:: else
		fi;
		atomic {
			disarm();
			poll(got); got = 0
		};
		if
		:: WAKING -> unlock(); lock()
		:: else
		fi
	od
}
#endif

active proctype Tester()
{
	byte k;
	bool got;
	atomic { lock(); poll(got); vain(); unlock() };
	if
	:: atomic { lock(); poll(got); vain(); unlock() }
	:: atomic { lock(); ended[0] = 1; if :: registered[0] -> wake(0) :: else fi; unlock() } /* Op.cancel */
	fi
}

active proctype Arrivals()
{
	byte i;
	do
	:: atomic { i < WAITERS ->
		if
		:: arrived[i] = 1; wakeup = wakeup || listening
		:: skip
		fi;
		i++ }
	:: else -> break
	od
}

active proctype Context() { if :: canceled[0] = 1 :: skip fi }

init
{
	byte i;
	atomic {
		do
		:: i < WAITERS -> run Waiter(i); i++
		:: else -> break
		od;
		i = 0
	};
	timeout;
	do
	:: i < WAITERS -> assert(back[i] || (!arrived[i] && !ended[i] && !canceled[i])); i++
	:: else -> break
	od
}
