/*
 * Room: a writer that finds its ring full and a reader that frees lines just then; the other half of parking (park.pml).
 *
 * Check it, and the variants that must fail, by progress/models/check.sh.
 *
 * Processes
 *
 *   Writer   internal/shmring/producer.go Push, reserve, refresh; then verbs/soft/internal/shm/link.go Send, which remembers
 *            that the ring is full, and poll.go serve, which tries again when the writer is raised.
 *   Reader   consumer.go Peek, Advance, Release; link.go reportFree, at once or, for payloads that were lent, before the next
 *            poll (shm.go release).
 *   Buffers  store buffers, as in park.pml.
 *
 * A ring has LINES lines; packets take one to a quarter of them, and do not wrap: the lines up to the end are skipped. One
 * line behind a packet stays free (its word is 0). The reader reports what it freed when that is a quarter of the ring.
 *
 * With FIRST the ring uses the first FIRST lines, until a packet is longer than a quarter of them, or finds no room. Then its writer
 * says in the line at tail that all lines are used (producer.go grow), which may fail for want of memory, and both ends go on at the
 * number GROWN, whose place is the first line that was not used.
 *
 * What is left out: how the writer sleeps and is raised in its inbox (park.pml): `raised` is that; a raise is not lost.
 *
 * Properties: a packet, and the free line behind it, never take a line whose release the reader has not reported; the reader finds
 * each packet where it was written; where nothing more can happen, all packets were written and taken.
 *
 * Variants that must fail
 *
 *   FAULT_PLAIN_WANT   no barrier between saying that room is wanted and the second look for it
 *   FAULT_PLAIN_HEAD   no barrier between reporting what is free and the look whether it is wanted
 *   FAULT_NO_LOOK      no second look after saying so
 *   FAULT_WANT_FIRST   the reader looks whether room is wanted before it reports
 *   FAULT_CLEAR_LATE   the reader takes the wish back after it raised the writer
 *   FAULT_REPORT_LATE  the reader reports when nearly the whole ring is free: a packet need not fit into the rest
 *
 * and with FIRST
 *
 *   FAULT_GROW_BEGIN   both ends go on at the first line of the ring
 *   FAULT_GROW_ROOM    the writer takes the lines of the first part for free then
 *   FAULT_GROW_DEAF    it does not see that the ring has grown
 */

#ifndef LINES
#define LINES 8
#endif
#ifndef FIRST
#define FIRST LINES
#endif
#ifndef PACKETS
#define PACKETS 7
#endif
#define QUARTER(l) ((l) / 4)
#ifdef FAULT_REPORT_LATE
#define REPORT(l) ((l) - 1)
#else
#define REPORT(l) QUARTER(l)
#endif
/* layout.go: grown */
#ifdef FAULT_GROW_BEGIN
#define GROWN(t) ((t) / LINES * LINES + LINES)
#else
#define GROWN(t) ((t) / LINES * LINES + LINES + FIRST)
#endif

byte head;            /* control.head: lines before this are free */
bool want;            /* control.want */
bool raised;          /* the writer is to be woken */
bool sleeping;        /* the writer is */

chan ring = [LINES + 1] of { byte }; /* lines of each packet and of the skip before it; 0: the ring has grown */

/* Ghost: what is in each line of the ring. */
#define FREE  0
#define FULL  1
#define TAKEN 2       /* and not reported */
byte place[LINES];

/* One address a process: the writer stores want, the reader head. */
chan wants = [2] of { bool };
chan heads = [2] of { byte };

active proctype Buffers()
{
end:
	do
	:: wants?want
	:: heads?head
	od
}

/* The writer reads head. */
#define REFRESH limit = (head + part > limit -> head + part : limit)

active proctype Writer()
{
	byte tail, n, skip_, left = PACKETS, size, part = FIRST, i;
	byte limit = FIRST;
	do
	:: left > 0 ->
		/* pushAny */
		select (size : 1 .. QUARTER(LINES));
again:
#if FIRST < LINES
		if
		:: size > QUARTER(part) -> goto grow
		:: else
		fi;
#endif
		atomic {
			skip_ = part - tail % part;
			skip_ = (size <= skip_ -> 0 : skip_);
			n = size + skip_; skip_ = 0
		};
		do
		:: tail + n < limit -> break
		:: else ->
			REFRESH;
			if
			:: tail + n < limit -> break
			:: else
			fi;
#if FIRST < LINES
			if
			:: part < LINES -> goto grow
			:: skip /* there are no more lines, or no memory for them */
			fi;
#endif
#ifdef FAULT_PLAIN_WANT
			wants!1;
#else
			atomic { len(wants) == 0 -> want = 1 };
#endif
#ifndef FAULT_NO_LOOK
			REFRESH;
			if
			:: tail + n < limit -> break
			:: else
			fi;
#endif
			sleeping = 1;
			atomic { raised -> raised = 0; sleeping = 0 }
		od;
		atomic {
			assert(place[(tail + n) % part] == FREE); /* the line behind: its word is cleared */
			i = 0;
			do
			:: i < n -> assert(place[(tail + i) % part] == FREE); place[(tail + i) % part] = FULL; i++
			:: else -> break
			od;
			tail = tail + n;
			ring!n;
			n = 0; i = 0; size = 0; left--
		}
	:: else -> break
	od;
	goto done;
#if FIRST < LINES
grow:
	atomic {
		assert(place[tail % part] == FREE);
		tail = GROWN(tail);
		part = LINES;
#ifdef FAULT_GROW_ROOM
		limit = tail + LINES;
#else
		limit = tail + LINES - FIRST;
#endif
		n = 0;
		ring!0
	};
	goto again;
#endif
done:
	skip
}

active proctype Reader()
{
	byte pos, reported, n, part = FIRST, i;
	bool wanted;
	do
	:: d_step { ring?n ->
			/* Peek, Advance */
			i = 0;
			do
			:: i < n -> assert(place[(pos + i) % part] == FULL); place[(pos + i) % part] = TAKEN; i++
			:: else -> break
			od;
			pos = pos + n;
#ifndef FAULT_GROW_DEAF
			if
			:: n == 0 -> pos = GROWN(pos); reported = pos; part = LINES
			:: else
			fi;
#endif
			n = 0; i = 0
		}
	:: pos - reported >= REPORT(part) ->
		/* Release */
		reported = pos;
#ifdef FAULT_WANT_FIRST
		wanted = want;
#endif
		d_step { /* before the report, from which on the writer may take them */
			i = 0;
			do
			:: i < LINES -> place[i] = (place[i] == TAKEN -> FREE : place[i]); i++
			:: else -> break
			od;
			i = 0
		};
#ifdef FAULT_PLAIN_HEAD
		heads!pos;
#else
		atomic { len(heads) == 0 -> head = pos };
#endif
#ifndef FAULT_WANT_FIRST
		wanted = want;
#endif
		if
		:: wanted ->
#ifdef FAULT_CLEAR_LATE
			raised = 1;
			atomic { len(heads) == 0 -> want = 0 }
#else
			atomic { len(heads) == 0 -> want = 0 };
			raised = 1
#endif
		:: else
		fi;
		wanted = 0
	:: timeout ->
		assert(!sleeping && len(ring) == 0);
		break
	od
}
