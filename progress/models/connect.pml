/*
 * The handshake: how two ranks connect their queue pairs by lines between their devices, when one of them first posts to the other.
 *
 * Check it, and the variants that must fail, by progress/models/check.sh.
 *
 * Processes
 *
 *   End     a rank: transport/internal/links. It begins (the first post), polls what it was told, moves its queue pairs, posts, and may
 *           give up the other for a cause of its own: a failed queue pair, Disconnect. With STOPS one rank may stop at any time.
 *   Line    verbs.Device.Tell and PollTold. Of the messages under way when a line ends, some first ones arrive, then the end of the line,
 *           at each end that has told or was told something on it. The next Tell makes a new line. Whose device does not know yet,
 *           or whose owner has not polled the end, tells on the old line, and it is lost; or on the new one.
 *   Nic     packets of queue pairs, which overtake what the line carries.
 *
 * With RESTARTS, ranks close their transports and open others, on the same device: what the line carries goes on. A transport has a
 * number, which its HELLO says.
 *
 * Messages: HELLO has the number of its transport. READY has that of the HELLO that it answers. END has none.
 *
 * What is left out: what HELLO says beside the number; more than two ranks (a rank's states for its peers have nothing in common but
 * that one connection at most is made in a poll, which here may come at any time); malformed messages.
 *
 * Properties
 *
 *   ready      no packet arrives at a queue pair that is in INIT
 *   settled    where nothing more can happen, both are up with each other, or both have lost each other, or one has lost the other, which
 *              never began; whoever began is up or has lost the other, unless that has stopped and the line has not ended
 *   of now     who is up is so with a transport that has taken its number: nothing of an earlier transport was taken
 *   in turn    no end finds that the other has broken the protocol; with RESTARTS, READY may answer a HELLO that an earlier transport took
 *   few        at most ROOM messages wait at a device, which is half of what it allows
 *
 * No run is endless, so that what holds where nothing more can happen is what holds in the end.
 *
 * Variants that must fail
 *
 *   FAULT_READY_EARLY   READY is told before the queue pairs are in RTR
 *   FAULT_POST_EARLY    posts before READY
 *   FAULT_READY_LOST    a READY that comes before the own queue pairs are raised is forgotten
 *   FAULT_OLD_HELLO     with RESTARTS: a second HELLO, of another number, is ignored
 *   FAULT_READY_BLIND   with RESTARTS: READY is taken whichever number it has
 *   FAULT_NO_REFUSAL    END is not told after a refused HELLO
 *   FAULT_NO_END        nor by who gives up a rank that has been told HELLO
 *   FAULT_END_IGNORED   END is ignored
 *   FAULT_LINE_IGNORED  the end of a line is ignored by who is not up
 *   FAULT_FORGIVES      HELLO from a rank that is lost is taken
 */

#ifndef BREAKS
#define BREAKS 2 /* ends of lines */
#endif
#ifndef FAILS
#define FAILS 1 /* causes of their own, each */
#endif
#ifndef RESTARTS
#define RESTARTS 0 /* each */
#endif

/* States of an end. */
#define NEW    0
#define MADE   1 /* queue pairs in INIT */
#define RAISED 2 /* in RTS */
#define UP     3 /* and the other is ready */
#define LOST   4

/* Told, and, as bits, still to be told: a Tell for which there is no room is repeated after a later poll. */
#define HELLO 1
#define READY 2
#define END   4
#define OVER  8 /* the line has ended */

#define ROOM 8

chan told[2] = [ROOM] of { byte, byte }; /* to each end: what, number */

byte state[2], theirs[2];      /* the number of the other's HELLO, 0: none came */
byte number[2] = { 1, 1 };
byte due[2];
bool ready[2], posted[2];
byte nic[2];                   /* to each end: number of the transport that a packet is for; 0: none */

bool line;
bool known[2];                 /* the line exists for this end */
byte fresh[2];                 /* messages of it in told */

bool wants[2], halted[2];     /* this end begins; it does nothing any more */
byte breaks, fails[2], restarts[2]; /* that may still happen */

byte took[2 * (RESTARTS + 2)]; /* ghost, by end and number: number of the other that this transport raised its queue pairs to */
#define TOOK(i, n) took[(i) * (RESTARTS + 2) + (n)]
bool was[2];                   /* ghost: this transport has lost the other */

#define OTHER(i)  (1 - (i))
#define WAITS(i)  (state[i] == MADE || state[i] == RAISED)

/* --- Line -------------------------------------------------------------------------------------------------------------- */

/* tell tells the other end, or on a line that is over. */
inline tell(i, what, n)
{
	if
	:: told[i]??[OVER, 0] -> skip
	:: assert(nfull(told[OTHER(i)])); /* few */
		told[OTHER(i)]!what, n; fresh[OTHER(i)]++; line = 1; known[i] = 1
	fi
}

/* cut ends the line for end i: some of what is under way to it is lost. */
inline cut(i)
{
	select (k : 0 .. fresh[i]);
	n = len(told[i]);
	do
	:: n > 0 ->
		told[i]?a, b;
		if
		:: n > fresh[i] - k -> told[i]!a, b
		:: else
		fi;
		n--
	:: else -> break
	od;
	if
	:: known[i] || k > 0 -> told[i]!OVER, 0
	:: else
	fi;
	known[i] = 0; fresh[i] = 0; a = 0; b = 0; k = 0
}

active proctype Line()
{
	byte a, b, k, n;
end:
	do
	:: atomic { breaks > 0 && line -> breaks--; line = 0; cut(0); cut(1) }
	od
}

/* --- End --------------------------------------------------------------------------------------------------------------- */

/* make makes the queue pairs. */
inline make(i)
{
	state[i] = MADE; due[i] = due[i] | HELLO
}

/* lose ends the link, and drops what this end wanted to tell; tells is what it tells instead. */
inline lose(i, tells)
{
	state[i] = LOST; was[i] = 1; ready[i] = 0; due[i] = tells
}

inline up(i)
{
	state[i] = UP;
	assert(!was[i]);
	assert(TOOK(OTHER(i), theirs[i]) == number[i]) /* of now */
}

#ifdef FAULT_NO_REFUSAL
#define REFUSAL 0
#else
#define REFUSAL END
#endif
#ifdef FAULT_NO_END
#define WORD 0
#else
#define WORD END
#endif
#ifdef FAULT_POST_EARLY
#define MAYPOST(i) (state[i] == RAISED || state[i] == UP)
#else
#define MAYPOST(i) (state[i] == UP)
#endif
#ifdef FAULT_READY_BLIND
#define MINE(i) 1
#else
#define MINE(i) (n == number[i])
#endif
#ifdef FAULT_READY_LOST
#define EARLY 0
#else
#define EARLY 1
#endif
#ifdef FAULT_FORGIVES
#define FRESH(i) (state[i] == NEW || state[i] == LOST)
#else
#define FRESH(i) (state[i] == NEW)
#endif
#ifdef FAULT_END_IGNORED
#define HEARS(i) 0
#else
#define HEARS(i) (state[i] != LOST)
#endif
#ifdef FAULT_LINE_IGNORED
#define ATTACHED(i) (state[i] == UP)
#else
#define ATTACHED(i) (state[i] != NEW && state[i] != LOST)
#endif

inline hello(i)
{
	assert(FRESH(i) || state[i] == LOST || theirs[i] == 0 || (RESTARTS && theirs[i] != n)); /* in turn */
	if
	:: FRESH(i) -> make(i); theirs[i] = n
	:: state[i] == MADE && theirs[i] == 0 -> theirs[i] = n
#ifndef FAULT_FORGIVES
	:: state[i] == LOST -> due[i] = due[i] | REFUSAL
#endif
#if RESTARTS > 0
	:: else ->
#ifndef FAULT_OLD_HELLO
		lose(i, END)
#endif
#endif
	fi;
#ifdef FAULT_READY_EARLY
	if
	:: WAITS(i) -> due[i] = due[i] | READY
	:: else
	fi
#endif
}

proctype End(byte i)
{
	byte what, n;
end:
	do
	/* the first post */
	:: atomic { wants[i] && state[i] == NEW -> wants[i] = 0; make(i) }

	/* Tell */
	:: atomic { due[i] & HELLO -> due[i] = due[i] & ~HELLO; tell(i, HELLO, number[i]) }
	:: atomic { (due[i] & (HELLO | READY)) == READY -> due[i] = due[i] & ~READY; tell(i, READY, theirs[i]) }
	:: atomic { due[i] == END -> due[i] = 0; tell(i, END, 0) }

	/* PollTold */
	:: atomic { told[i]?what, n ->
		if
		:: len(told[i]) + 1 == fresh[i] -> fresh[i]--; known[i] = 1
		:: else
		fi;
		if
		:: what == HELLO -> hello(i)
		:: what == READY ->
			assert(RESTARTS || state[i] == LOST || (WAITS(i) && theirs[i] != 0 && !ready[i])); /* in turn */
			if
			:: state[i] == MADE && theirs[i] != 0 && MINE(i) -> ready[i] = EARLY
			:: state[i] == RAISED && MINE(i) -> up(i)
			:: state[i] == LOST
#if RESTARTS > 0
			:: else -> lose(i, END)
#endif
			fi
		:: what == END && HEARS(i) -> lose(i, 0)
		:: what == END && !HEARS(i)
		:: what == OVER && ATTACHED(i) -> lose(i, 0)
		:: what == OVER && !ATTACHED(i) -> due[i] = 0
		fi;
		what = 0; n = 0
	}

	/* both ends have made their queue pairs */
	:: atomic { state[i] == MADE && theirs[i] != 0 ->
		state[i] = RAISED;
		TOOK(i, number[i]) = theirs[i];
#ifndef FAULT_READY_EARLY
		due[i] = due[i] | READY;
#endif
		if
		:: ready[i] -> ready[i] = 0; up(i)
		:: else
		fi
	}

	:: atomic { MAYPOST(i) && !posted[i] && nic[OTHER(i)] == 0 -> posted[i] = 1; nic[OTHER(i)] = theirs[i] }

	/* a cause of its own */
	:: atomic { fails[i] > 0 && state[i] != LOST ->
		fails[i]--;
		if
		:: state[i] == NEW -> lose(i, 0); wants[i] = 0
		:: else -> lose(i, WORD)
		fi
	}

#ifdef STOPS
	:: atomic { i == 1 && !halted[i] -> halted[i] = 1; break }
#endif
#if RESTARTS > 0
	:: atomic { restarts[i] > 0 ->
		restarts[i]--;
		number[i]++;
		state[i] = NEW; was[i] = 0; theirs[i] = 0; ready[i] = 0; due[i] = 0; posted[i] = 0;
		if
		:: wants[i] = 1
		:: wants[i] = 0
		fi
	}
#endif
	od
}

/* --- Nic --------------------------------------------------------------------------------------------------------------- */

#define carries(i) :: atomic { nic[i] != 0 -> \
	assert(nic[i] != number[i] || state[i] == RAISED || state[i] == UP || state[i] == LOST); /* ready */ \
	nic[i] = 0 }

active proctype Nic()
{
end:
	do
	carries(0)
	carries(1)
	od
}

#define settled(i) \
	assert(len(told[i]) == 0 || halted[i]); \
	assert(halted[i] || !WAITS(i) || (halted[OTHER(i)] && line)); \
	assert(halted[0] || halted[1] || state[i] != UP || state[OTHER(i)] == UP); \
	assert(halted[0] || halted[1] || state[i] != LOST || state[OTHER(i)] == LOST || state[OTHER(i)] == NEW)

inline choose(v, most)
{
	do
	:: v < most -> v++
	:: break
	od
}

init
{
	atomic {
		if
		:: wants[0] = 1; wants[1] = 1
		:: wants[0] = 1
		:: wants[1] = 1
		fi;
		choose(breaks, BREAKS);
		choose(fails[0], FAILS);
		choose(fails[1], FAILS);
#if RESTARTS > 0
		choose(restarts[0], RESTARTS);
		choose(restarts[1], RESTARTS);
#endif
		run End(0);
		run End(1)
	};
	timeout;
#if RESTARTS == 0
	settled(0);
	settled(1)
#endif
}
