/*
 * HELD and WANT: what a peer may send is bounded by credit, and the bound yields to a receive that waits, and to nothing else.
 *
 * Check it, and the variants that must fail, by progress/models/check.sh.
 *
 * Processes
 *
 *   Sender    progress/internal/flow.Sender: a send is queued (Push) or cancelled (Remove), the head of the queue goes (Sent)
 *             or the queue is held up (Hold), the peer is told (Due), a WANT comes (Want).
 *   Receiver  progress/internal/flow.Receiver: a receive is posted, or ends (Post), a message comes (Charge), HELD comes (Held),
 *             WANTs and credit are told as far as there is room (Due).
 *   Store     a grant lands in the sender's memory (transport.Grant), and wakes nobody: the sender looks there when it sends.
 *
 *   s2r, r2s  the connection, each way in order; ROOM is what it takes. A send, a HELD, a WANT wait for room.
 *
 * One step is what happens under one hold of an engine's lock, or less: the queue goes message by message.
 *
 * Messages have tag A or B, receives name A, B or any. Both are chosen when they are posted, and a receive also ends
 * because it is cancelled, or because another sender has matched it (ENDS times): its WANT becomes pointless. One that is
 * cancelled in a device may still take a message of this sender's. Both tags are alike, therefore the first one named is
 * A. A message costs 1; with -DCOSTS, B costs 2. The window may grow and shrink by one at any time (GROWTH times).
 *
 * What is left out: data and rendezvous (a request is a message), other senders (an episode is one pair's; what they do to this
 * pair is to end receives), receives that name another source, bytes, loss of the peer.
 *
 * Properties
 *
 *   no deadlock       where nothing more can happen, no message waits at its sender that matches a receive that waits, nor
 *                     one that its credit covers, as the receiver knows it
 *   order             messages come in the order in which they were sent: Receiver, MSG
 *   bound             a message beyond the credit was asked for in this episode, or it is a protocol error; and messages that took
 *                     a WANT and found no receive are at most as many as receives that were named and ended otherwise: pointless
 *   table             the sender knows at most SLOTS wants
 *   credit            where nothing more can happen, what was granted is at the sender, and what was consumed is granted, all but
 *                     less than QUANTUM
 *
 * No run is endless, so that what holds where nothing more can happen is what holds in the end.
 *
 * Variants that must fail
 *
 *   FAULT_LOST_HELD     a HELD may be lost
 *   FAULT_LOST_WANT     a WANT may be lost
 *   FAULT_NO_HELD       nobody is told
 *   FAULT_NO_NAMES      HELD is not answered by a WANT for each receive that waits
 *   FAULT_NO_POST       no WANT for a receive that is posted while the peer is held up
 *   FAULT_IGNORED       the sender ignores WANTs, but for their credit
 *   FAULT_NO_ALL        what has no slot is not asked for
 *   FAULT_NO_KNOWN      HELD does not say what credit the sender knows: a grant that it did not see is lost to it
 *   FAULT_STORE         a grant to a peer that is held up is stored only
 *   FAULT_OLD_WANT      a WANT of an episode that is over is obeyed
 *   FAULT_OLD_CREDIT    the credit of such a WANT is not taken
 *   FAULT_REMEMBERED    the sender does not forget the wants when an episode ends
 *   FAULT_STEAL         a slot is used anew although its receive waits
 *   FAULT_NO_REPLACE    a WANT for a slot in use is added
 *   FAULT_BOTH          a message uses up all wants that it matches
 *   FAULT_ONE_WANT      the receiver sends no WANT that is equal to one that waits
 *   FAULT_IN_PLACE      a WANT for a slot in use takes the place of the old one
 *   FAULT_LAST_FIRST    a message uses up the last want that it matches
 *   FAULT_LATE_FIRST    WANTs that waited for room are told in the order of slots
 *   FAULT_CANCELLING    WANTs are told while a receive is cancelling, which may take what another's WANT was for
 *   FAULT_NOT_USED      a message uses up no want
 *   FAULT_CREDIT_FREE   nor does one that goes within its credit while the queue is held up
 *   FAULT_OVERTAKE      only the message that a want matches goes
 *   FAULT_WITHIN_ENDS   what a WANT permits ends when a message comes within the credit
 *   FAULT_WRAP          episodes are counted modulo 4
 */

#ifndef MSGS
#define MSGS 3 /* at most 6 */
#endif
#ifndef RECVS
#define RECVS 3 /* 2 to 4 */
#endif
#ifndef SLOTS
#define SLOTS 2 /* at most 3 */
#endif
#ifndef WINDOW
#define WINDOW 1
#endif
#ifndef QUANTUM
#define QUANTUM 1 /* a grant is worth telling: a quarter of the window */
#endif
#ifndef ROOM
#define ROOM 2
#endif
#ifndef CANCELS
#define CANCELS 1 /* sends that are cancelled */
#endif
#ifndef ENDS
#define ENDS 1 /* receives that end without a message of this sender */
#endif
#ifndef GROWTH
#define GROWTH 0
#endif
#ifdef FAULT_WRAP
#define MOD 4
#else
#define MOD (2 * MSGS + 2) /* each episode takes a message */
#endif

/* What a receive names, and the tag of a message, as sets of tags. */
#define A   1
#define B   2
#define ANY 3

#define NEW      0
#define WAITING  1
#define CANCELLING 2 /* cancelled, and in the device, which has not answered: it may take a message */
#define ENDED    3

/* What goes from the sender. */
#define MSG  0 /* message, whether a want matched it */
#define HELD 1 /* episode, credit as the sender knows it */

/* Slots of a WANT beside 0 to SLOTS-1. */
#define NONE 254
#define ALL  255

chan s2r = [ROOM] of { byte, byte, byte };       /* MSG or HELD, and its two values */
chan r2s = [ROOM] of { byte, byte, byte, byte }; /* WANT: episode, slot, tags, credit */

/* Messages, receives. */
byte tags;              /* bit m: message m has tag B */
byte sent;              /* by the program */
byte kind[RECVS], state[RECVS];
byte posted;
bool named;             /* a tag was named: see above */
byte canceled, ended;

/* Sender. */
byte queue;             /* bit m: message m waits */
byte charged, allowed = WINDOW;
byte episode, told;     /* odd while held up; as the peer knows it */
byte wslot[SLOTS + 1], wtags[SLOTS + 1], wants; /* in order of arrival */
bool all;

/* Store. */
byte stored = WINDOW, cell = WINDOW;

/* Receiver. */
byte window = WINDOW;
byte received, consumed, granted = WINDOW;
byte unexpected;        /* bit m: message m */
byte last;              /* messages up to this one came, or were cancelled */
byte theirs;            /* episode */
byte inslot[SLOTS];     /* 1 + receive */
bool due[SLOTS];        /* it was not told */
bool wantsall, alldue, creditdue;
bool excess;            /* the peer was asked for more than its credit */
byte grown, shrunk;

byte asked;             /* ghost, bit r: receive r waits and was named to the sender */
byte pointless;         /* ghost: WANTs that became pointless and have not cost anything */

byte x, y, z;           /* scratch, 0 between steps */

#define BIT(set, i)  (((set) >> (i)) & 1)
#define TAG(m)       (BIT(tags, m) + 1)
#ifdef COSTS
#define COST(m)      TAG(m)
#else
#define COST(m)      1
#endif
#define HEAD         (queue & 1 -> 0 : (queue & 2 -> 1 : (queue & 4 -> 2 : (queue & 8 -> 3 : (queue & 16 -> 4 : 5)))))
#define QUEUED       (((queue & ~tags) != 0) + 2 * ((queue & tags) != 0)) /* tags of the queue */
#define HELDUP       (episode & 1)
#define COVERED      (charged + COST(HEAD) <= allowed)
#if SLOTS == 1
#define WANTED       wtags[0]
#elif SLOTS == 2
#define WANTED       (wtags[0] | wtags[1])
#else
#define WANTED       (wtags[0] | wtags[1] | wtags[2])
#endif
#define PERMITTED    (HELDUP && (all || (WANTED & QUEUED)))
#define THEYWAIT     (theirs & 1)
#define ISWAITING(r) (state[r] == WAITING)
#define TAKES(r)     (state[r] == WAITING || state[r] == CANCELLING)
#define MAX(a, b)    ((a) > (b) -> (a) : (b))

/* --- Sender ------------------------------------------------------------------------------------------------------------ */

/* look is covers: what has been granted meanwhile. */
inline look() { allowed = MAX(allowed, cell) }

/* unwant drops the want at place i. */
inline unwant(i)
{
	z = i;
	do
	:: z + 1 < wants -> wslot[z] = wslot[z + 1]; wtags[z] = wtags[z + 1]; z++
	:: else -> break
	od;
	wslot[z] = 0; wtags[z] = 0; z = 0;
	wants--
}

/* use drops the want that message m uses up; y tells whether there is one. */
inline use(m, drop)
{
	y = 0;
#ifdef FAULT_LAST_FIRST
	x = wants;
	do
	:: x > 0 && !(wtags[x - 1] & TAG(m)) -> x--
	:: else -> break
	od;
	if
	:: x > 0 -> unwant(x - 1); y = 1
	:: else
	fi;
#else
	do
	:: x < wants && (wtags[x] & TAG(m)) ->
		y = 1;
		if
		:: drop -> unwant(x)
		:: else -> x++
		fi;
#ifndef FAULT_BOTH
		break
#endif
	:: x < wants && !(wtags[x] & TAG(m)) -> x++
	:: x >= wants -> break
	od;
#endif
	x = 0
}

/* emptied is Drained. */
inline emptied()
{
	if
	:: queue == 0 && HELDUP ->
		episode = (episode + 1) % MOD;
		all = 0;
#ifndef FAULT_REMEMBERED
		do
		:: wants > 0 -> unwant(wants - 1)
		:: else -> break
		od
#endif
	:: else
	fi
}

#if defined(FAULT_NOT_USED)
#define USES 0
#elif defined(FAULT_CREDIT_FREE)
#define USES (!covered)
#else
#define USES 1
#endif

active proctype Sender()
{
	byte m, e, s, t, c;
	bool covered;
end:
	do
	/* Push */
	:: atomic { sent < MSGS ->
		if
		:: skip
		:: named -> tags = tags | (1 << sent)
		fi;
		d_step { named = 1; queue = queue | (1 << sent); sent++; look() }
	}

	/* First: the head goes */
	:: d_step { queue != 0 && len(s2r) < ROOM && (COVERED || PERMITTED) ->
		m = HEAD;
		covered = COVERED;
#ifdef FAULT_OVERTAKE
		do
		:: !covered && !all && !(BIT(queue, m) && (TAG(m) & WANTED)) -> m++
		:: else -> break
		od;
#endif
		if
		:: HELDUP && !all -> use(m, USES)
		:: else -> y = 0
		fi;
		s2r!MSG(m, y);
		y = 0;
		charged = charged + COST(m);
		queue = queue & ~(1 << m);
		emptied();
		m = 0; covered = 0
	}
	/* or it is held up */
	:: d_step { queue != 0 && !HELDUP && !COVERED -> episode = (episode + 1) % MOD }

	/* Due: an episode that the peer never heard of and that is over need not be told */
	:: d_step { told != episode && !HELDUP && !(told & 1) -> told = episode }
	:: atomic { told != episode && (HELDUP || (told & 1)) && len(s2r) < ROOM ->
		told = episode;
		if
#ifndef FAULT_NO_HELD
		:: s2r!HELD(episode, allowed)
#endif
#if defined(FAULT_LOST_HELD) || defined(FAULT_NO_HELD)
		:: skip
#endif
		fi
	}

	/* Want */
	:: d_step { r2s?e, s, t, c ->
#ifdef FAULT_OLD_CREDIT
		allowed = (HELDUP && e == episode -> MAX(allowed, c) : allowed);
#else
		allowed = MAX(allowed, c);
#endif
		look();
		if
#ifdef FAULT_IGNORED
		:: 0 -> skip
#elif defined(FAULT_OLD_WANT)
		:: HELDUP && s == ALL -> all = 1
		:: HELDUP && s != ALL && s != NONE ->
#else
		:: HELDUP && e == episode && s == ALL -> all = 1
		:: HELDUP && e == episode && s != ALL && s != NONE ->
#endif
#ifndef FAULT_IGNORED
			x = 0;
			do
			:: x < wants && wslot[x] != s -> x++
			:: else -> break
			od;
#ifndef FAULT_NO_REPLACE
			if
#ifdef FAULT_IN_PLACE
			:: x < wants -> wtags[x] = t; s = NONE
#else
			:: x < wants -> unwant(x)
#endif
			:: else
			fi;
#endif
			x = 0;
			assert(wants < SLOTS || s == NONE); /* table */
			if
			:: s != NONE -> wslot[wants] = s; wtags[wants] = t; wants++
			:: else
			fi
#endif
		:: else
		fi;
		e = 0; s = 0; t = 0; c = 0
	}

	/* Remove */
#if CANCELS > 0
	:: atomic { canceled < CANCELS && queue != 0 ->
		m = 0;
		do
		:: (queue >> (m + 1)) != 0 -> m++
		:: BIT(queue, m) -> break
		od;
		d_step { queue = queue & ~(1 << m); tags = tags & ~(1 << m); m = 0; canceled++; emptied(); look() }
	}
#endif
	od
}

active proctype Store()
{
end:
	do
	:: d_step { cell != stored -> cell = stored }
	od
}

/* --- Receiver ---------------------------------------------------------------------------------------------------------- */

/* finish ends receive r; taken tells whether it was by a message that a want matched. */
inline finish(r, taken)
{
	pointless = (taken -> pointless : pointless + BIT(asked, r));
	asked = asked & ~(1 << r);
	state[r] = ENDED;
	kind[r] = 0
}

/* grant is peer.grant: the sender is told by a store, or by a WANT if it is held up. */
inline grant()
{
	if
	:: granted < consumed + window ->
		granted = consumed + window;
#ifdef FAULT_STORE
		stored = granted
#else
		if
		:: THEYWAIT -> creditdue = 1
		:: else -> stored = granted
		fi
#endif
	:: else
	fi
}

/* consume is peer.consumed. */
inline consume(m)
{
	consumed = consumed + COST(m);
	tags = tags & ~(1 << m);
	if
	:: granted + QUANTUM <= consumed + window -> grant()
	:: else
	fi
}

/* name gives receive r a slot: one that is free, or whose receive does not wait any more. */
inline name(r)
{
	y = 0;
	do
	:: y < SLOTS && inslot[y] != 0 && ISWAITING(inslot[y] - 1) -> y++
	:: else -> break
	od;
#ifdef FAULT_STEAL
	y = (y == SLOTS -> 0 : y);
#endif
#ifdef FAULT_ONE_WANT
	z = 0;
	do
	:: z < SLOTS && !(inslot[z] != 0 && ISWAITING(inslot[z] - 1) && kind[inslot[z] - 1] == kind[r]) -> z++
	:: else -> break
	od;
	y = (z < SLOTS -> NONE : y);
	z = 0;
#endif
	if
	:: !wantsall && y < SLOTS -> inslot[y] = r + 1; due[y] = 1
#ifndef FAULT_NO_ALL
	:: !wantsall && y == SLOTS -> wantsall = 1; alldue = 1
#endif
	:: else
	fi;
	y = 0
}

/* dueNext (Receiver.next) sets x to the slot to tell first, or SLOTS. */
inline dueNext()
{
	x = SLOTS; y = 0;
	do
#ifdef FAULT_LATE_FIRST
	:: y < SLOTS && due[y] && x == SLOTS -> x = y; y++
	:: y < SLOTS && !(due[y] && x == SLOTS) -> y++
#else
	:: y < SLOTS && due[y] && (x == SLOTS || inslot[y] < inslot[x % SLOTS]) -> x = y; y++
	:: y < SLOTS && !(due[y] && (x == SLOTS || inslot[y] < inslot[x % SLOTS])) -> y++
#endif
	:: y >= SLOTS -> break
	od;
	y = 0
}

#ifdef FAULT_LOST_WANT
#define want(slot, set) if :: r2s!theirs, slot, set, granted :: skip fi
#else
#define want(slot, set) r2s!theirs, slot, set, granted
#endif

#if SLOTS == 1
#define ANYDUE due[0]
#elif SLOTS == 2
#define ANYDUE (due[0] || due[1])
#else
#define ANYDUE (due[0] || due[1] || due[2])
#endif

#if ENDS > 0
#define elsewhere(r) :: d_step { ended < ENDS && ISWAITING(r) -> finish(r, 0); ended++ } \
	:: d_step { ended < ENDS && ISWAITING(r) -> state[r] = CANCELLING; ended++ } \
	:: d_step { state[r] == CANCELLING -> finish(r, 0) }
#else
#define elsewhere(r)
#endif

#define CALLED(r) || state[r] == CANCELLING
#ifdef FAULT_CANCELLING
#define MAYTELL 1
#else
#define MAYTELL (!(0 each(CALLED))) /* no receive is cancelling */
#endif

#if RECVS == 2
#define each(f) f(0) f(1)
#elif RECVS == 3
#define each(f) f(0) f(1) f(2)
#else
#define each(f) f(0) f(1) f(2) f(3)
#endif

active proctype Receiver()
{
	byte what, v, w, r;
end:
	do
	/* a receive is posted */
	:: atomic { posted < RECVS ->
		if
		:: kind[posted] = A; named = 1
		:: named -> kind[posted] = B
		:: kind[posted] = ANY
		fi;
		d_step {
			r = posted;
			posted++;
			do
			:: v < sent && !(BIT(unexpected, v) && (kind[r] & TAG(v))) -> v++
			:: else -> break
			od;
			if
			:: v < sent ->
				unexpected = unexpected & ~(1 << v);
				finish(r, 0);
				consume(v)
			:: else ->
				state[r] = WAITING;
				if
#ifndef FAULT_NO_POST
				:: THEYWAIT -> name(r)
#endif
				:: else
				fi
			fi;
			v = 0; r = 0
		}
	}

	/* one is cancelled, or gets a message from elsewhere */
	each(elsewhere)

	:: d_step { s2r?what, v, w ->
		if
		:: what == MSG ->
			assert(v >= last); /* order */
			last = v + 1;
			received = received + COST(v);
			assert(received <= granted || excess); /* bound */
#ifdef FAULT_WITHIN_ENDS
			excess = excess && received > granted;
#endif
			do
			:: r < posted && !(TAKES(r) && (kind[r] & TAG(v))) -> r++
			:: else -> break
			od;
			if
			:: r < posted ->
				finish(r, w);
				consume(v)
			:: else ->
				unexpected = unexpected | (1 << v);
				assert(pointless >= w); /* bound */
				pointless = pointless - w
			fi;
			r = 0
		:: what == HELD ->
			theirs = v;
			wantsall = 0; alldue = 0; excess = 0;
			do
			:: r < SLOTS -> inslot[r] = 0; due[r] = 0; r++
			:: else -> break
			od;
			r = 0;
			if
			:: THEYWAIT ->
				grant();
#ifdef FAULT_NO_KNOWN
				creditdue = 0;
#else
				creditdue = granted > w;
#endif
#ifndef FAULT_NO_NAMES
				do
				:: r < posted && ISWAITING(r) -> name(r); r++
				:: r < posted && !ISWAITING(r) -> r++
				:: r >= posted -> break
				od;
				r = 0
#endif
			:: else -> stored = (creditdue -> granted : stored); creditdue = 0
			fi
		fi;
		what = 0; v = 0; w = 0
	}

#if GROWTH > 0
	:: d_step { grown < GROWTH -> grown++; window++; grant() }
	:: d_step { shrunk < GROWTH && window > 0 -> shrunk++; window-- }
#endif

	/* Due */
	:: atomic { THEYWAIT && alldue && len(r2s) < ROOM ->
		alldue = 0; creditdue = 0; excess = 1;
		want(ALL, ANY)
	}
	:: atomic { THEYWAIT && !wantsall && ANYDUE && MAYTELL && len(r2s) < ROOM ->
		dueNext();
		due[x] = 0;
		r = inslot[x] - 1;
		if
		:: ISWAITING(r) ->
			creditdue = 0; excess = 1; asked = asked | (1 << r);
			want(x, kind[r])
		:: else
		fi;
		x = 0; r = 0
	}
	:: atomic { THEYWAIT && creditdue && !alldue && (wantsall || !ANYDUE || !MAYTELL) && len(r2s) < ROOM ->
		creditdue = 0;
		want(NONE, 0)
	}

	:: timeout ->
		assert(len(s2r) == 0 && len(r2s) == 0);
		do
		:: r < posted -> assert(!ISWAITING(r) || !(kind[r] & QUEUED)); r++ /* no deadlock */
		:: else -> break
		od;
		assert(queue == 0 || charged + COST(HEAD) > granted);
		assert(charged == received);
		assert(MAX(allowed, cell) == granted); /* credit */
		assert(granted + QUANTUM > consumed + window);
		break
	od
}
