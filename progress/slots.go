package progress

import "iter"

// slot identifies an Op to a peer or to the transport: an index, and a generation by which an
// answer that is late or forged is recognised.
type slot struct {
	index uint32
	gen   uint32
}

const (
	slotIndexBits = 20
	slotGenBits   = 11
	slotGenMask   = 1<<slotGenBits - 1

	// rndvName is set in the app_ctx of rendezvous requests, and not in that of eager messages,
	// which is the sender's rank. So a receiver can tell which of the two its device has matched.
	rndvName = 1 << 31

	sendSlots = 1 << slotIndexBits // named by 32 bits on the wire
	readSlots = 1 << 24            // named by 64 bits, locally
)

// wire is the 32-bit name of a send.
func (s slot) wire() uint32 { return rndvName | s.index | (s.gen&slotGenMask)<<slotIndexBits }

// id is the 64-bit name of a read, or of a receive in a device.
func (s slot) id() uint64 { return uint64(s.index) | uint64(s.gen)<<32 }

// slots is a table of Ops. The slot that was freed first is used first, so that generations of 11
// bits repeat as late as possible.
type slots struct {
	entries    []slotEntry
	limit      int
	head, tail uint32 // free entries by index plus 1; 0 none
	used       int
	bulky      *int // counts those with bulky set, in all tables of an engine
}

type slotEntry struct {
	note  note // of its operation, or of the one before
	op    *Op
	gen   uint32
	next  uint32
	bulky bool // its operation has at least bulk bytes
}

// bulk is the size in bytes from which on a message is worth waking a device that works by itself:
// two wake-ups and what goes with them take 50 to 90 us (docs/performance.md).
const bulk = 1 << 20

// eagerSlots is how many slots a table grows to before it uses any again.
const eagerSlots = 64

func (t *slots) init(limit int, bulky *int) { t.limit, t.bulky = limit, bulky }

// tables are those of an engine.
func (e *Engine) tables() [3]*slots { return [3]*slots{&e.sends, &e.reads.slots, &e.off.slots} }

// ops gives the operations that have a slot. Meanwhile slots may be released; one that is added may
// be left out.
func (t *slots) ops() iter.Seq[*Op] {
	return func(yield func(*Op) bool) {
		for i := range t.entries {
			if op := t.entries[i].op; op != nil && !yield(op) {
				return
			}
		}
	}
}

// take finds a free slot for op; false means that all are in use.
func (t *slots) take(op *Op) (slot, bool) {
	if t.head == 0 || len(t.entries) < eagerSlots {
		if len(t.entries) == t.limit {
			return slot{}, false
		}
		t.entries = append(t.entries, slotEntry{})
		s := slot{index: uint32(len(t.entries) - 1)}
		t.set(s.index, op)
		return s, true
	}
	i := t.head - 1
	en := &t.entries[i]
	t.head = en.next
	if t.head == 0 {
		t.tail = 0
	}
	t.set(i, op)
	return slot{index: i, gen: en.gen}, true
}

func (t *slots) set(i uint32, op *Op) {
	en := &t.entries[i]
	en.note, en.op, en.next = op.note, op, 0
	t.used++
	if en.bulky = op.room() >= bulk; en.bulky {
		*t.bulky++
	}
}

func (t *slots) release(s slot) {
	t.checkTaken(s)
	en := &t.entries[s.index]
	en.op = nil
	if en.bulky {
		*t.bulky--
	}
	en.gen++
	if t.tail == 0 {
		t.head = s.index + 1
	} else {
		t.entries[t.tail-1].next = s.index + 1
	}
	t.tail = s.index + 1
	t.used--
}

// replace gives a slot another Op, or none while it stays in use.
func (t *slots) replace(s slot, op *Op) {
	t.checkTaken(s)
	t.entries[s.index].op = op
}

// byWire finds the Op that a peer names; nil where the name is of an earlier generation or of none.
func (t *slots) byWire(name uint32) *Op {
	i, gen := name&(1<<slotIndexBits-1), name>>slotIndexBits&slotGenMask
	if name&rndvName == 0 || int(i) >= len(t.entries) || t.entries[i].gen&slotGenMask != gen {
		return nil
	}
	return t.entries[i].op
}

func (t *slots) byID(id uint64) *Op {
	i, gen := id&(1<<32-1), uint32(id>>32)
	if i >= uint64(len(t.entries)) || t.entries[i].gen != gen {
		return nil
	}
	return t.entries[i].op
}

// reading is the receives that read, by read id, and the abandoned ones.
type reading struct {
	slots

	// by is those in state opReading, by what they read; nil until a sender withdraws a message.
	// From then on it is kept: the map is smaller than the Ops in it, and who has withdrawn one
	// message may withdraw more.
	by map[request]*Op
}

// take gives a receive that reads its slot. It returns false if there is none.
func (t *reading) take(op *Op) bool {
	s, ok := t.slots.take(op)
	if !ok {
		return false
	}
	op.slot = s
	if t.by != nil {
		t.by[op.read.request()] = op
	}
	return true
}

// release frees the slot of a receive that reads, or of an abandoned one.
func (t *reading) release(op *Op) {
	t.forget(op)
	t.slots.release(op.slot)
}

// forget forgets who reads a message, as its receive does not any more.
func (t *reading) forget(op *Op) {
	if name := op.read.request(); t.by != nil && t.by[name] == op {
		delete(t.by, name)
	}
}

// of finds the receive that reads a message.
func (t *reading) of(r request) *Op {
	if t.by == nil && t.used != 0 {
		t.by = map[request]*Op{}
		for op := range t.ops() {
			if op.state == opReading {
				t.by[op.read.request()] = op
			}
		}
	}
	return t.by[r]
}

// fail ends the receives that were reading. The transport is closed, and writes to their buffers no
// more.
func (t *reading) fail(err error) {
	for op := range t.ops() {
		t.release(op)
		if op.state == opAbandoned {
			op.vanish()
		} else {
			op.complete(Status{}, err)
		}
	}
}
