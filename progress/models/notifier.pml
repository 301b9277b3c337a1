/*
 * The notifier: how a device's wake-ups reach the goroutine that waits, and its engine; verbs/soft/internal/notify/epoll_linux.go.
 *
 * Check it, and the variants that must fail, by progress/models/check.sh.
 *
 * Processes
 *
 *   Waker   whoever wakes, WAKERS of them: makes something that the owner is to see (`work`), then notify.Epoll.Wake: the flag,
 *           then the eventfd.
 *   Owner   the loop in which Wait is called (progress/internal/wait/loop.go attend): it looks at all work, and waits. wait is
 *           notify.Epoll.Wait in os.RawConn's Read: the poller's edge is reset once (`edge`), then the epoll is asked, and only
 *           while that finds nothing the goroutine parks until the next edge.
 *
 * The eventfd is level-triggered in the epoll, the epoll edge-triggered in Go's netpoller: a write to the eventfd makes an
 * edge. All of it is atomics and system calls: sequentially consistent (shared memory is in park.pml).
 *
 * Property: where nothing more can happen, the owner has seen all work. That is so for each prefix of a run too: a waker
 * may stop after any wake.
 *
 * Variants that must fail
 *
 *   FAULT_FLAG_FIRST   take clears the flag before it empties the eventfd
 *   FAULT_WAKE_FIRST   a waker wakes before it makes its work visible
 *   FAULT_LATE_RESET   the edge is reset after the epoll was found empty
 *   FAULT_NO_TAKE_FLAG take empties the eventfd alone
 *   FAULT_WRITE_FIRST  wake writes to the eventfd before it sets the flag
 */

#ifndef WAKERS
#define WAKERS 3
#endif
#ifndef WAKES
#define WAKES 2
#endif

bool work[WAKERS];
bool signalled, eventfd, edge;

proctype Waker(byte me)
{
	byte n;
	bool was;
	do
	:: n < WAKES ->
		n++;
#ifndef FAULT_WAKE_FIRST
		work[me] = 1;
#endif
		if
		:: signalled
		:: else ->
#ifdef FAULT_WRITE_FIRST
			atomic { eventfd = 1; edge = 1 };
			signalled = 1
#else
			atomic { was = signalled; signalled = 1 };
			if
			:: was
			:: else -> atomic { eventfd = 1; edge = 1 }
			fi;
			was = 0
#endif
		fi;
#ifdef FAULT_WAKE_FIRST
		work[me] = 1
#endif
	:: break
	od
}

inline take()
{
#ifdef FAULT_FLAG_FIRST
	signalled = 0;
	eventfd = 0
#else
	eventfd = 0;
#ifndef FAULT_NO_TAKE_FLAG
	signalled = 0
#endif
#endif
}

active proctype Owner()
{
	byte i;
	atomic {
		do
		:: i < WAKERS -> run Waker(i); i++
		:: else -> break
		od;
		i = 0
	};
	do
	::
		do
		:: i < WAKERS -> work[i] = 0; i++ /* the poll between Arm and Wait, and that after it */
		:: else -> break
		od;
		i = 0;
#ifndef FAULT_LATE_RESET
		edge = 0;
#endif
		do
		:: eventfd -> take(); break
		:: else ->
#ifdef FAULT_LATE_RESET
			edge = 0;
#endif
			if
			:: atomic { edge -> edge = 0 }
			:: timeout ->
				do
				:: i < WAKERS -> assert(!work[i]); i++
				:: else -> break
				od;
				goto done
			fi
		od
	od;
done:
	skip
}
