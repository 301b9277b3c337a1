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
 * What is left out: how the writer sleeps and is raised in its inbox (park.pml): `raised` is that; a raise is not lost.
 *
 * Properties: a packet never overwrites one that was not taken; where nothing more can happen, all packets were written and taken.
 *
 * Variants that must fail
 *
 *   FAULT_PLAIN_WANT   no barrier between saying that room is wanted and the second look for it
 *   FAULT_PLAIN_HEAD   no barrier between reporting what is free and the look whether it is wanted
 *   FAULT_NO_LOOK      no second look after saying so
 *   FAULT_WANT_FIRST   the reader looks whether room is wanted before it reports
 *   FAULT_CLEAR_LATE   the reader takes the wish back after it raised the writer
 *   FAULT_REPORT_LATE  the reader reports when nearly the whole ring is free: a packet need not fit into the rest
 */

#ifndef LINES
#define LINES 8
#endif
#ifndef PACKETS
#define PACKETS 7
#endif
#define QUARTER (LINES / 4)
#ifdef FAULT_REPORT_LATE
#define REPORT (LINES - 1)
#else
#define REPORT QUARTER
#endif

byte head;            /* control.head: lines before this are free */
bool want;            /* control.want */
bool raised;          /* the writer is to be woken */
bool sleeping;        /* the writer is */

chan ring = [LINES] of { byte }; /* lines of each packet and of the skip before it */
byte lines;           /* ghost: used by what is in the ring, reported or not, and not taken */

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

active proctype Writer()
{
	byte tail, n, skip_, left = PACKETS, size;
	byte limit = LINES;
	do
	:: left > 0 ->
		/* pushAny */
		atomic {
			select (size : 1 .. QUARTER);
			n = size;
			skip_ = LINES - tail % LINES;
			skip_ = (n <= skip_ -> 0 : skip_);
			n = n + skip_; skip_ = 0; size = 0
		};
		do
		:: tail + n < limit -> break
		:: else ->
			limit = head + LINES; /* refresh */
			if
			:: tail + n < limit -> break
			:: else
			fi;
#ifdef FAULT_PLAIN_WANT
			wants!1;
#else
			atomic { len(wants) == 0 -> want = 1 };
#endif
#ifndef FAULT_NO_LOOK
			limit = head + LINES;
			if
			:: tail + n < limit -> break
			:: else
			fi;
#endif
			sleeping = 1;
			atomic { raised -> raised = 0; sleeping = 0 }
		od;
		atomic {
			tail = tail + n;
			lines = lines + n;
			assert(lines < LINES);
			ring!n;
			n = 0; left--
		}
	:: else -> break
	od
}

active proctype Reader()
{
	byte pos, reported, n;
	bool wanted;
	do
	:: atomic { ring?n -> pos = pos + n; lines = lines - n; n = 0 }
	:: pos - reported >= REPORT ->
		/* Release */
		reported = pos;
#ifdef FAULT_WANT_FIRST
		wanted = want;
#endif
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
		assert(!sleeping && lines == 0);
		break
	od
}
