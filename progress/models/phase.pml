/*
 * The phase protocol: how host and device keep one matching order while both of them match (TMO 5 and 6; "TMO 5.3" is
 * section 5.3 of docs/tag-matching-offload.md, V1 to V19 are its invariants in 7.1).
 *
 * Check it, and the variants that must fail, by progress/models/check.sh.
 *
 * Processes
 *
 *   Wire    one source that sends MSGS messages in order; each has tag 0 or 1. It may stop earlier.
 *   Device  the tag-matching SRQ: verbs/soft/internal/taglist (List.Execute: list operations; Match and
 *           Unexpected: messages). One step is one operation or one message: a list has one owner (V10).
 *   Host    the engine under its lock, so that one step is what happens under one hold of it: a receive is posted
 *           (progress/recv.go post, offload.go place), one completion is handled in order (sink.go, taglist.go),
 *           a DEL that found no room is posted (transport/tmsrq tagList.flush), a receive goes to the device later
 *           (promote), the count is sent for its own sake (sync), a receive is cancelled (taglist.go del).
 *
 *   cq      the completion queue; messages that nobody has polled lie in it
 *   opq     list operations that are posted and have not taken effect: the room of transport/tmsrq/ops.go. The software
 *           device takes them at once or, with softtest.TM.DelayOps, later
 *   dels    transport/tmsrq ops.waiting: DELs that found no room, with their counts. For the engine they are posted
 *
 * What is left out: data (MATCH and DATA_VALID are one completion), rendezvous (the device matches it like any message), ADDs'
 * completions, reuse of handles, messages of several packets (counted at the first; nothing of their source comes between), small
 * receives, a full list and the resting after thrashing: a receive is kept in software, or goes to the device, by chance at any time.
 *
 * Tags and receives are chosen when they are sent and posted, so that one run is over all of the 2^MSGS x 6^RECVS cases of
 * TMO 5.6. Both tags are alike, therefore the first one named is 0. Counters are modulo MOD and start just below it, so that they wrap.
 *
 * Properties, as in TMO 5.6:
 *
 *   no receive used twice             V3: matched()
 *   no failed unsignalled DEL         V11: Device, DROP; strict: nor one of an entry that is live
 *   no overtaking                     V1, V2: matched()
 *   no matchable pair left            V18: settled()
 *   one end for each receive          V12: Host, cases of DEL; a DEL that fails comes after its MATCH (TMO 4.5)
 *   nothing stays dormant             TMO 5.4: at the end of Host, where nothing more can happen
 *
 * No run is endless: each step uses up a message, a receive, a completion, an operation or a difference between C and what was
 * reported. So what holds where nothing more can happen is what holds in the end.
 *
 * With -DLOOSE the first four properties alone are checked: neither that an unsignalled DEL is of a dormant entry nor that
 * nothing stays dormant. Variants that must fail are run with it, so that they fail for what a user would see.
 */

#ifndef MSGS
#define MSGS 4
#endif
#ifndef RECVS
#define RECVS 3 /* at most 3: see each */
#endif
#ifndef OPS
#define OPS 2
#endif
#ifndef MOD
#define MOD (MSGS + 1) /* TMO 5.5: more than there can be unhandled */
#endif

/*
 * Variants that must hold as well
 *
 *   OLD_COUNT            a forced DEL carries the count before its message (TMO 5.3); the engine sends the one after
 *   LIVE_GO_DORMANT      an unexpected message makes all entries dormant: softtest.TM.LiveGoDormant
 *   CANCEL=n             the first n receives are cancelled (TMO 6.6); the others have to become live at last
 *   FAULT_NO_SYNC LOOSE  all SYNCs are lost (V18): only slower
 *
 * Variants that must fail
 *
 *   FAULT_NO_PHASE       no counters: entries are live at once
 *   FAULT_EARLY_COUNT    a message is counted, under one hold of the lock, and delivered or queued under another (V8)
 *   FAULT_DOUBLE_COUNT   a message is counted twice (V8)
 *   FAULT_ACTIVATE_FIRST a DEL activates before it removes, and a message comes in between (V10)
 *   FAULT_NO_OVERLAP     a receive goes to the device although one that software keeps overlaps it (V6)
 *   FAULT_PROMOTE_ANY    the same at promotion: out of posting order
 *   FAULT_NO_SEARCH      the unexpected queue is not searched before a receive is posted (V7)
 *   FAULT_LATE_DROP      operations overtake DELs that wait for room (V9)
 *   FAULT_LATER_COUNT    such a DEL carries the count of when it is posted (V9)
 *   FAULT_CANCEL_UNSIGNALLED  with CANCEL: the DEL of an entry that may be live is unsignalled, its success assumed (V11)
 *   FAULT_UNTOLD         with CANCEL: where a DEL waited in vain, for a receive that was matched, its count is never told
 *   FAULT_OTHER_PATH     messages come past the device too and are matched like those that it passed on (TMO 6.4)
 *   FAULT_NO_SYNC        the count is never sent for its own sake (TMO 5.4): entries stay dormant
 *   MOD=3                the counters wrap within what can be unhandled (V15, TMO 5.5)
 */

#define ANY 2 /* a receive's kind: tag 0, tag 1, or any */

/* A receive's state, as Host knows it. */
#define NEW       0
#define KEPT      1 /* opPosted: software has it */
#define OFFLOADED 2 /* opOffloaded: the device has it */
#define CANCELLING  3 /* opCancelling: the device has it, its signalled DEL is posted, it is not in the posted-receive queue */
#define ENDED     4

/* List operations; OFFSET is the receive. */
#define ADD  0
#define DROP 1 /* DEL, unsignalled */
#define DEL  2 /* DEL, signalled */
#define SYNC 3

/* Completions. */
#define UNEXPECTED 0
#define MATCH      1
#define DELETED    2
#define DEL_ERR    3

byte kind[RECVS], state[RECVS];
byte posted;          /* receives posted so far, 0 to posted-1: the posted-receive queue's order */
byte sent;            /* messages so far */
byte tags;            /* bit m: tag of message m */
byte queue;           /* bit m: message m is in the unexpected queue */
bool named;           /* a tag was named */
byte C = MOD - 1;     /* offload.handled */
byte reported = MOD - 1;
bool syncing;

byte H = MOD - 1, S = MOD - 1;
byte list[RECVS];     /* the device's list, oldest first */
byte entries, live;   /* those before live are live: entries become live all at once */

byte mdone, rdone;    /* ghosts: bit set when message or receive is matched, wherever */

chan wire = [0] of { byte };
chan opq = [OPS] of { byte, byte, byte };   /* operation, receive, count */
chan dels = [RECVS] of { byte, byte, byte };  /* the same, DROP or DEL */
chan cq = [MSGS + RECVS] of { byte, byte }; /* completion, message or receive */

byte w, x, y, z, found;  /* scratch, 0 between steps */

#define BIT(set, i)    (((set) >> (i)) & 1)
#define TAG(m)         BIT(tags, m)
#define FITS(r, m)     (kind[r] == ANY || kind[r] == TAG(m))
#define OVERLAP(a, b)  (kind[a] == kind[b] || kind[a] == ANY || kind[b] == ANY)
#define ROOM           (len(opq) < OPS)
#define SHADOW(r)      (state[r] == KEPT || state[r] == OFFLOADED) /* is in Engine.posted, as far as Host knows */
#define WAITING(r)     (SHADOW(r) && !BIT(rdone, r))
#define NONE           255

#ifdef FAULT_EARLY_COUNT
byte inhand = NONE; /* a message that is counted, and neither delivered nor queued */
#else
#define inhand NONE
#endif

#ifdef FAULT_LATE_DROP
#define MAYPOST ROOM
#else
#define MAYPOST (ROOM && len(dels) == 0) /* V9: nothing overtakes a DEL that waits */
#endif

/* matched: receive r and message m are given to each other, by device or host. */
inline matched(r, m)
{
	assert(!BIT(rdone, r) && !BIT(mdone, m)); /* V3 */
	z = 0;
	do /* V2: no earlier receive waits for it */
	:: z < r -> assert(!WAITING(z) || !FITS(z, m)); z++
	:: else -> break
	od;
	z = 0;
#ifndef FAULT_OTHER_PATH
	do /* V1: it waits for no earlier message */
	:: z < m -> assert(BIT(mdone, z) || !FITS(r, z)); z++
	:: else -> break
	od;
	z = 0;
#endif
	rdone = rdone | (1 << r);
	mdone = mdone | (1 << m)
}

/* settled: where no completion waits, no message waits for a receive that waits for it. */
inline settled()
{
	x = 0; y = 0;
	do
	:: x < posted && y < sent ->
		assert(len(cq) > 0 || inhand != NONE || !WAITING(x) || BIT(mdone, y) || !FITS(x, y));
		y++
	:: x < posted && y >= sent -> y = 0; x++
	:: x >= posted -> break
	od;
	x = 0; y = 0
}

/* --- Device ------------------------------------------------------------------------------------------------------------ */

#ifdef FAULT_NO_PHASE
#define activate() live = entries
#else
#define activate() live = (S == H -> entries : live) /* taglist.List.activate */
#endif

/* removal takes receive r out of the list; found tells where it was. */
inline removal(r)
{
	found = 0;
	do
	:: found < entries && list[found] != r -> found++
	:: else -> break
	od;
	if
	:: found < entries ->
		x = found;
		do
		:: x + 1 < entries -> list[x] = list[x + 1]; x++
		:: else -> break
		od;
		list[x] = 0; x = 0;
		entries--;
		live = (found < live -> live - 1 : live)
	:: else -> found = NONE
	fi
}

active proctype Wire()
{
	do
	:: atomic { sent < MSGS -> if :: wire!0 :: named -> wire!1 fi }
	:: break
	od
}

/* arrive is taglist.List.Match, else Unexpected: rule 5 of TMO 5.2. */
inline arrive()
{
	atomic { wire?t ->
		d_step {
			named = 1;
			tags = tags | (t << sent);
			t = 0;
			do
			:: t < live && !FITS(list[t], sent) -> t++
			:: else -> break
			od
		};
		if
		:: t < live ->
			d_step { k = list[t]; matched(k, sent); removal(k); found = 0; cq!MATCH(k) }
		:: else ->
			d_step {
				H = (H + 1) % MOD;
				cq!UNEXPECTED(sent);
#ifdef LIVE_GO_DORMANT
				live = 0;
#endif
			}
		fi;
		sent++;
		t = 0; k = 0
	}
}

active proctype Device()
{
	byte t, r, c, k;
end:
	do
	:: arrive()
	:: atomic { opq?ADD, r, c -> /* rules 1 and 4 */
		d_step { list[entries] = r; entries++; S = c; activate(); r = 0; c = 0 }
	}
	:: atomic { opq?SYNC, r, c ->
		d_step { S = c; activate(); syncing = 0; r = 0; c = 0 }
	}
	:: atomic { opq?DROP, r, c -> /* rule 2 */
		d_step {
#ifdef FAULT_ACTIVATE_FIRST
			S = c; activate()
		}
	   };
	   do :: arrive() :: break od;
	   atomic {
		d_step {
			removal(r);
			assert(found != NONE);
			found = 0;
#else
			removal(r);
			assert(found != NONE);          /* TMO 5.6: no failed unsignalled DEL */
#ifndef LOOSE
			assert(found >= live);          /* V11: it was dormant. The software device's strict mode */
#endif
			S = c; activate();
			found = 0;
#endif
			r = 0; c = 0
		}
	}
#ifdef CANCEL
	:: atomic { opq?DEL, r, c ->
		d_step {
			removal(r);
			S = c; activate();
			if
			:: found == NONE -> cq!DEL_ERR(r)
			:: else -> cq!DELETED(r)
			fi;
			found = 0; r = 0; c = 0
		}
	}
#endif
	od
}

/* --- Host -------------------------------------------------------------------------------------------------------------- */

/* eligible sets found to 0 if an earlier receive that software keeps overlaps r (V6, TMO 6.3), else to 1. */
inline eligible(r)
{
	found = 1;
	x = 0;
	do
	:: x < r -> found = found && !(state[x] == KEPT && OVERLAP(x, r)); x++
	:: else -> break
	od;
	x = 0
}

inline op(what, r, count)
{
	opq!what(r, count);
	reported = count
}

/* del is tagList.remove: it is posted behind those that wait, in their order. */
inline del(what, r, count)
{
	dels!what(r, count);
	reported = count
}

/* add is offload.add, for a receive for which there is room. */
inline add(r) { state[r] = OFFLOADED; op(ADD, r, C) }

/* search is posted.Match and unposted, or KeepEager, then count: all that is done with unexpected message m. */
inline search(m)
{
	x = 0;
	do
	:: x < posted && !(SHADOW(x) && FITS(x, m)) -> x++
	:: else -> break
	od;
	if
	:: x < posted ->
		matched(x, m);
		if
		:: state[x] == OFFLOADED ->
#ifdef OLD_COUNT
			del(DROP, x, C);
#else
			del(DROP, x, (C + 1) % MOD);
#endif
		:: else -> skip
		fi;
		state[x] = ENDED
	:: else -> queue = queue | (1 << m)
	fi;
	x = 0;
#ifdef FAULT_DOUBLE_COUNT
	C = (C + 1) % MOD;
#endif
#ifndef FAULT_EARLY_COUNT
	C = (C + 1) % MOD;
#endif
	postdel();
	settled()
}

/* postdel is tagList.flush for the oldest DEL that waits, if there is one and room. Of one whose receive was matched meanwhile only the
 * count is left. */
inline postdel()
{
	if
	:: ROOM && len(dels) > 0 ->
		dels?w, x, y;
#ifdef FAULT_LATER_COUNT
		y = C;
#endif
#ifdef CANCEL
		if
#ifdef FAULT_UNTOLD
		:: w == DEL && state[x] == ENDED -> skip
#else
		:: w == DEL && state[x] == ENDED -> opq!SYNC(0, y)
#endif
		:: else -> opq!w(x, y)
		fi;
#else
		opq!w(x, y);
#endif
		w = 0; x = 0; y = 0
	:: else -> skip
	fi
}

/* take is Irecv: the unexpected queue is searched, under the lock that posting is under (V7); oldest message first. */
inline take(r)
{
	y = 0;
	do
	:: y < sent && !(BIT(queue, y) && FITS(r, y)) -> y++
	:: else -> break
	od;
#ifdef FAULT_NO_SEARCH
	y = sent;
#endif
	if
	:: y < sent ->
		matched(r, y);
		queue = queue & ~(1 << y);
		state[r] = ENDED
	:: else -> state[r] = KEPT
	fi;
	y = 0
}

#ifdef FAULT_NO_OVERLAP
#define OFFERABLE(r) (state[r] == KEPT && MAYPOST)
#else
#define OFFERABLE(r) (state[r] == KEPT && found && MAYPOST)
#endif
#ifdef FAULT_PROMOTE_ANY
#define PROMOTABLE(r) (r < posted && state[r] == KEPT && MAYPOST)
#else
#define PROMOTABLE(r) (r < posted && state[r] == KEPT && MAYPOST && \
	!(r > 0 && state[0] == KEPT && OVERLAP(0, r)) && !(r > 1 && state[1] == KEPT && OVERLAP(1, r)))
#endif

#define promote(r) :: d_step { PROMOTABLE(r) -> add(r) }

#define CANCELS(r) (r < posted && r < CANCEL)

#if defined(CANCEL) && defined(FAULT_CANCEL_UNSIGNALLED)
#define cancel(r) :: d_step { CANCELS(r) && state[r] == OFFLOADED -> del(DROP, r, C); state[r] = ENDED; postdel() }
#elif defined(CANCEL)
#define cancel(r) :: d_step { CANCELS(r) && state[r] == OFFLOADED -> del(DEL, r, C); state[r] = CANCELLING; postdel() } \
	:: d_step { CANCELS(r) && state[r] == KEPT -> state[r] = ENDED }
#else
#define cancel(r)
#endif

#if RECVS == 1
#define each(f) f(0)
#elif RECVS == 2
#define each(f) f(0) f(1)
#else
#define each(f) f(0) f(1) f(2)
#endif

active proctype Host()
{
	byte c, i;
	do
	/* place */
	:: atomic { posted < RECVS ->
		if
		:: kind[posted] = 0; named = 1
		:: named -> kind[posted] = 1
		:: kind[posted] = ANY
		fi;
		d_step { i = posted; posted++; take(i); settled(); eligible(i) };
		if
		:: OFFERABLE(i) -> add(i)
		:: skip /* kept in software */
		fi;
		found = 0; i = 0
	}

	/* sink.go, taglist.go: one completion */
#ifdef FAULT_EARLY_COUNT
	:: atomic { inhand == NONE && len(cq) > 0 ->
#else
	:: atomic { len(cq) > 0 ->
#endif
		d_step {
			cq?c, i;
			if
			:: c == UNEXPECTED ->
#ifdef FAULT_EARLY_COUNT
				inhand = i; C = (C + 1) % MOD
#else
				search(i)
#endif
			:: c == MATCH ->
				assert(state[i] == OFFLOADED || state[i] == CANCELLING); /* V12; else notOffloadedLocked */
				state[i] = ENDED;
				settled()
			:: c == DELETED ->
				assert(state[i] == CANCELLING && !BIT(rdone, i));      /* V12 */
				state[i] = ENDED;
				settled()
			:: c == DEL_ERR ->
				assert(state[i] == ENDED && BIT(rdone, i));          /* TMO 4.5, 6.6 */
				settled()
			fi;
			c = 0; i = 0
		}
	}
#ifdef FAULT_EARLY_COUNT
	:: d_step { inhand != NONE -> i = inhand; inhand = NONE; search(i); i = 0 }
#endif

	:: d_step { ROOM && len(dels) > 0 -> postdel() }
	each(promote)
	each(cancel)

#ifndef FAULT_NO_SYNC
	/* sync; one at a time (TMO 5.4) */
	:: d_step { MAYPOST && !syncing && C != reported && entries > 0 -> syncing = 1; op(SYNC, 0, C) }
#endif

#ifdef FAULT_OTHER_PATH
	/* TMO 6.4: a message of another source, which comes past the device, is matched like one that the device passed on */
	:: atomic { sent < MSGS ->
		if
		:: skip
		:: named -> tags = tags | (1 << sent)
		fi;
		d_step { named = 1; sent++; C = (C + MOD - 1) % MOD; search(sent - 1) }
	}
#endif

	:: timeout ->
#ifndef LOOSE
		assert(live == entries); /* nothing stays dormant */
#endif
		break
	od
}
