/*
 * Parking: a reader that goes to sleep and writers that publish just then, in shared memory of several processes with a weak
 * memory order: the classic lost wake-up, where each side misses the other. internal/shmring/doc.go ("Parking").
 *
 * Check it, and the variants that must fail, by progress/models/check.sh.
 *
 * Processes
 *
 *   Reader    the owner of a device on the shm wire, whoever polls for the engine: progress/internal/wait/loop.go attend (park.go
 *             sleep is the same): Arm, poll once more, Wait, Disarm, poll. Arm and Disarm are in
 *             verbs/soft/internal/shm/shm.go; poll is poll.go Poll, pollSlow, serve, drain, promote, demote; Park, Unpark and Take
 *             are internal/shmring/inbox.go, SetHot and Empty consumer.go.
 *   Writer    a peer that sends on its ring, WRITERS of them: verbs/soft/internal/shm/link.go Send, or Publish (producer.go publish and
 *             NeedsSignal), peer.go signal (inbox.go Raise, then a write to the pipe). It may stop after any packet.
 *   Buffers   the processors' store buffers: total store order, as on amd64. A plain store goes into the buffer of its process
 *             and reaches memory later; loads read memory. No process loads what it stored itself, but for atomic
 *             operations, so that nothing has to be forwarded. An atomic store (an exchange), or, swap and compare-and-swap
 *             wait until the buffer is empty: full barriers. On arm64 the same holds of Go's atomics among each other
 *             (store-release, load-acquire), which is all that is needed of them here.
 *
 * What is left out: room (room.pml); everything between pipe and goroutine (notifier.pml): a
 * Wait returns once the pipe is readable, which it stays until arm reads it; the epoll on pidfds is `gone`.
 *
 * A poll that takes packets may find completions in them or none (acknowledgements, for instance): only in the first case does
 * the reader not sleep.
 *
 * Property: where nothing more can happen, every packet that was published has been taken; and no packet is taken before its content is
 * there. Runs end since packets do: the reader's polls in vain are not steps.
 *
 * Variants that must hold as well
 *
 *   TWICE                 arm is called twice: a program may arm two completion queues, and each arms the wires
 *   DEATH                 a writer may be killed at any point, even between taking on to wake the reader and waking it
 *
 * Variants that must fail
 *
 *   FAULT_PLAIN_PUBLISH   no barrier between publish and the load of the reader's state (publish: "load-bearing")
 *   FAULT_PLAIN_COLD      no barrier between SetHot(false) and the last look at the ring
 *   FAULT_PLAIN_PARK      no barrier between Park and the last look at the inbox
 *   FAULT_STATE_FIRST     the writer reads the reader's state before it publishes
 *   FAULT_PARKED_FIRST    the writer reads whether the reader is parked before it raises its bit
 *   FAULT_NO_LOOK         no poll between Arm and Wait
 *   FAULT_LOOK_HOT        the last look is at the hot rings alone
 *   FAULT_LOOK_INBOX      the last look is at the inbox alone
 *   FAULT_COLD_LATE       arm parks, and the last look is taken, before the hot rings are cold
 *   FAULT_DRAIN_LATE      arm empties the pipe after Park: the wake-up of a packet that is no completion is eaten
 *   FAULT_PARK_ONCE       the reader sleeps again without Park, although a wake-up has taken the parked state away
 *   FAULT_SUMMARY_FIRST   Raise sets the summary before the bit
 *   FAULT_SUMMARY_LAST    Take clears the summary after the bits
 *   FAULT_DEMOTE_BLIND    a ring is made cold without a look at it afterwards
 *   FAULT_PROMOTE_ARMED   a ring that becomes hot while the reader is armed is marked hot at once
 *   FAULT_DEATH_UNSEEN    with DEATH: nobody watches for it. Packets of others are lost too: the dead writer had taken on to wake the
 *                         reader for all. A writer that is stopped just there, not killed, is this case until it goes on, and
 *                         so is one that writes nonsense to the inbox: a limit of the protocol, which sweep.go makes one of
 *                         time. A reader that sleeps looks at all rings within 1 s; that is not modelled
 */

#ifndef WRITERS
#define WRITERS 2
#endif
#ifndef PACKETS
#define PACKETS 2
#endif

/* Shared memory: addresses of cells. Each is written atomically or through a store buffer. */
#define WORD(w)  (w)               /* packets published in ring w */
#define HOT(w)   (WRITERS + (w))   /* control.state of ring w: 1 hot */
#define BIT(w)   (2 * WRITERS + (w)) /* inbox.ready: slot of ring w */
#define DATA(w)  (3 * WRITERS + (w)) /* the newest packet's content: a number */
#define SUMMARY  (4 * WRITERS)
#define PARKED   (4 * WRITERS + 1)
#define CELLS    (4 * WRITERS + 2)

#define AWAKE 0
#define ASLEEP 1 /* inbox.go: parked */
#define WOKEN 2

byte cell[CELLS];
bool pipe;            /* it is not empty */

byte taken[WRITERS];  /* by the reader: Consumer.pos */
bool gone[WRITERS];   /* killed, pidfd ready */
bool removed[WRITERS]; /* shm.Wire.lost has been called */

#define READER WRITERS
chan buffer[WRITERS + 1] = [3] of { byte, byte };

#define DRAINED(p) (len(buffer[p]) == 0)
inline plain(p, a, v)    { buffer[p]!a(v) }
inline exchange(p, a, v) { atomic { DRAINED(p) -> cell[a] = v } } /* atomic.Store */

active proctype Buffers()
{
	byte a, v;
end:
	do
	:: d_step {
		if
		:: buffer[0]?a, v
		:: buffer[1]?a, v
#if WRITERS > 1
		:: buffer[2]?a, v
#endif
		fi;
		cell[a] = v; a = 0; v = 0
	}
	od
}

/* --- Writers ----------------------------------------------------------------------------------------------------------- */

inline raise(w)
{
#ifdef FAULT_PARKED_FIRST
	seen = cell[PARKED];
#endif
#ifdef FAULT_SUMMARY_FIRST
	if
	:: cell[SUMMARY] == 0 -> exchange(w, SUMMARY, 1)
	:: else
	fi;
	if
	:: cell[BIT(w)] == 0 -> exchange(w, BIT(w), 1)
	:: else
	fi;
#else
	if
	:: cell[BIT(w)] == 0 -> exchange(w, BIT(w), 1)
	:: else
	fi;
	if
	:: cell[SUMMARY] == 0 -> exchange(w, SUMMARY, 1)
	:: else
	fi;
#endif
#ifndef FAULT_PARKED_FIRST
	seen = cell[PARKED];
#endif
	if
	:: seen == ASLEEP ->
		seen = 0;
		atomic {
			DRAINED(w) ->
			if
			:: cell[PARKED] == ASLEEP -> cell[PARKED] = WOKEN; seen = 1
			:: else
			fi
		};
		if
		:: seen -> pipe = 1 /* shm.remote.signal */
		:: else
		fi
	:: else
	fi
}

#ifdef DEATH
bool died[WRITERS];
active proctype Killer() { if :: died[0] = 1 :: died[1] = 1 :: skip fi }
#endif

proctype Writer(byte w)
{
	byte n, seen;
	{
	do
	:: n < PACKETS ->
		n++;
		plain(w, DATA(w), n);
#ifdef FAULT_STATE_FIRST
		seen = cell[HOT(w)];
#endif
#ifdef FAULT_PLAIN_PUBLISH
		plain(w, WORD(w), n);
#else
		exchange(w, WORD(w), n);
#endif
#ifndef FAULT_STATE_FIRST
		seen = cell[HOT(w)]; /* NeedsSignal */
#endif
		if
		:: seen -> skip
		:: else -> raise(w)
		fi;
		seen = 0
	:: break
	od
	}
#ifdef DEATH
	unless { died[w] };
	gone[w] = 1
#endif
}

/* --- Reader ------------------------------------------------------------------------------------------------------------ */

/* drain takes what is in ring w; some of it may be completions. */
inline drain(w)
{
	atomic {
		if
		:: cell[WORD(w)] != taken[w] ->
			taken[w] = cell[WORD(w)]; served = 1;
			assert(cell[DATA(w)] >= taken[w]);
			if
			:: events = 1
			:: skip
			fi
		:: else
		fi
	}
}

/* cold makes ring w cold: SetHot(false). */
inline cold(w)
{
#ifdef FAULT_PLAIN_COLD
	plain(READER, HOT(w), 0)
#else
	exchange(READER, HOT(w), 0)
#endif
}

/* keep is Inbox.Keep, for a ring that the reader has not emptied. */
inline keep(w)
{
	exchange(READER, BIT(w), 1);
	exchange(READER, SUMMARY, 1)
}

/* promotion makes ring w hot, or not. */
inline promotion(w)
{
	if
	:: !hot[w] ->
		hot[w] = 1;
#ifndef FAULT_PROMOTE_ARMED
		if
		:: !armed -> exchange(READER, HOT(w), 1)
		:: else
		fi
#else
		exchange(READER, HOT(w), 1)
#endif
	:: skip
	fi
}

/* demotion makes ring w cold, to make place for another: demote. */
inline demotion(w)
{
	hot[w] = 0;
	cold(w);
#ifndef FAULT_DEMOTE_BLIND
	if
	:: cell[WORD(w)] != taken[w] -> keep(w)
	:: else
	fi
#endif
}

/* take is Inbox.Take and serve for each ring whose bit is set. One word holds all bits. */
inline take()
{
	atomic { DRAINED(READER) -> w = cell[SUMMARY];
#ifndef FAULT_SUMMARY_LAST
		cell[SUMMARY] = 0
#endif
	};
	if
	:: w ->
		atomic { DRAINED(READER) ->
			w = 0;
			do
			:: w < WRITERS -> raised[w] = cell[BIT(w)]; cell[BIT(w)] = 0; w++
			:: else -> break
			od
		};
#ifdef FAULT_SUMMARY_LAST
		exchange(READER, SUMMARY, 0);
#endif
		w = 0;
		do
		:: w < WRITERS && raised[w] ->
			raised[w] = 0; served = 0;
			drain(w);
			if
			:: served -> promotion(w)
			:: else
			fi;
			served = 0; w++
		:: w < WRITERS && !raised[w] -> w++
		:: w >= WRITERS -> break
		od
	:: else
	fi;
	w = 0
}

/* poll is shm.Wire.Poll with attention, and what follows it in a device's poll. */
inline poll(rings, inbox)
{
	w = 0;
	do
	:: w < WRITERS -> if :: rings && hot[w] -> drain(w) :: else fi; served = 0; w++
	:: else -> break
	od;
	w = 0;
	if
	:: inbox && cell[SUMMARY] -> take()
	:: else
	fi;
#ifdef DEATH
	/* watch.look, lost, drainDying: what it sent before it died is taken */
	do
	:: w < WRITERS && gone[w] && !removed[w] -> removed[w] = 1; drain(w); served = 0; w++
	:: w < WRITERS && !(gone[w] && !removed[w]) -> w++
	:: w >= WRITERS -> break
	od;
	w = 0
#endif
}

#if defined(DEATH) && !defined(FAULT_DEATH_UNSEEN)
#define DYING ((gone[0] && !removed[0]) || (gone[1] && !removed[1]))
#else
#define DYING false
#endif

inline park()
{
#ifdef FAULT_PLAIN_PARK
	plain(READER, PARKED, ASLEEP)
#else
	exchange(READER, PARKED, ASLEEP)
#endif
}

inline coldall()
{
	w = 0;
	do
	:: w < WRITERS -> if :: hot[w] -> cold(w) :: else fi; w++
	:: else -> break
	od;
	w = 0
}

/* arm is shm.Wire.Arm. */
inline arm()
{
	armed = 1;
#ifndef FAULT_COLD_LATE
	coldall();
#endif
#ifndef FAULT_DRAIN_LATE
	pipe = 0;
#endif
#ifdef FAULT_PARK_ONCE
	if
	:: !parkedonce -> parkedonce = 1; park()
	:: else
	fi;
#else
	park();
#endif
#ifdef FAULT_DRAIN_LATE
	pipe = 0;
#endif
}

/* RINGNEWS: a poll would find something. The reader polls on while nobody sends; those polls are no steps of the model. */
#if WRITERS == 1
#define RINGNEWS (hot[0] && cell[WORD(0)] != taken[0])
#else
#define RINGNEWS ((hot[0] && cell[WORD(0)] != taken[0]) || (hot[1] && cell[WORD(1)] != taken[1]))
#endif

#ifdef FAULT_LOOK_HOT
#define INBOX 0
#else
#define INBOX 1
#endif
#ifdef FAULT_LOOK_INBOX
#define RINGS 0
#else
#define RINGS 1
#endif

active proctype Reader()
{
	byte w;
	bool hot[WRITERS], raised[WRITERS], armed, events, served;
#ifdef FAULT_PARK_ONCE
	bool parkedonce;
#endif

	atomic {
		do
		:: w < WRITERS -> run Writer(w); w++
		:: else -> break
		od;
		w = 0
	};
	do
	:: /* awake: it polls while there is something, and for a while when there is not */
		do
		:: RINGNEWS || cell[SUMMARY] -> poll(1, 1); events = 0
		:: hot[0] -> demotion(0)
		:: break
		od;
		/* attend: Arm */
		arm();
#ifdef TWICE
		arm();
#endif
		events = 0;
#ifndef FAULT_NO_LOOK
		poll(RINGS, INBOX);
#endif
#ifdef FAULT_COLD_LATE
		coldall();
#endif
		if
		:: events
		:: else ->
			/* Wait */
			if
			:: pipe || DYING
			:: timeout ->
				/* Nothing more can happen. */
				w = 0;
				do
#ifdef FAULT_DEATH_UNSEEN
				:: w < WRITERS -> assert(taken[w] == cell[WORD(w)] || died[w]); w++
#else
				:: w < WRITERS -> assert(taken[w] == cell[WORD(w)]); w++
#endif
				:: else -> break
				od;
				goto done
			fi
		fi;
		events = 0;
		/* Disarm, and the poll that follows looks at everything */
		armed = 0;
		atomic { DRAINED(READER) -> cell[PARKED] = AWAKE }; /* Unpark */
		do
		:: w < WRITERS -> if :: hot[w] -> exchange(READER, HOT(w), 1) :: else fi; w++
		:: else -> break
		od;
		w = 0;
		poll(1, 1);
		events = 0
	od;
done:
	skip
}
