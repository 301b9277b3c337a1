package unexpected

import "github.com/tagmatch/tagmatch/matching"

// RecordCost is what a message costs beside its bytes: 96 bytes of Message, 40 of
// matching.Unexpected's entry, 8 of its value, up to 24 of buckets while a table grows, up to 48 of
// the index of one mask, 24 to 37 of source.named. Measured (TestRecordCost): 214 to 254 with all
// of them, the most where the buckets have just doubled. What a matching.Unexpected keeps beside,
// up to 1.3 MB once 16,384 messages were there, comes on top.
const RecordCost = 256

// EagerCost is what an eager message of n bytes costs its receiver, and so its sender's credit.
// Both must agree on it: it is a part of the protocol.
func EagerCost(n int) uint64 {
	if uint(n-1) < minBuffer {
		return RecordCost + minBuffer
	}
	return classCost(n)
}

func classCost(n int) uint64 {
	_, size := class(n)
	return RecordCost + uint64(size)
}

// Request is a rendezvous request: where its receiver reads the message.
type Request struct {
	Name uint32 // the sender's, unique among its requests
	RKey uint32
	Addr uint64
	Len  uint64 // bytes of the message
}

// Message is an unexpected message. The caller only reads it.
type Message struct {
	Tag     uint64
	Seq     uint64 // by order of arrival, from 1
	Data    []byte // of an eager message: all of its bytes
	Request        // of a rendezvous

	handle     matching.Handle // of a request: in Queue.arrived; 0: in Queue.requeued
	next, prev *Message        // of a request: among those of its source; next also in the free list
	Src        int32           // rank
	Rndv       bool            // it is a request, not an eager message
}

// Cost is what is given back for m when it is dropped. That of a requeued request was given back
// when it was matched first.
func (m *Message) Cost() uint64 {
	switch {
	case !m.Rndv:
		return EagerCost(len(m.Data))
	case m.handle == 0:
		return 0
	}
	return RecordCost
}

// records keeps the memory of Messages for the next ones.
type records struct {
	free *Message // linked by next
	n    int64    // free and in use
	most int64    // those beyond go when they are freed
}

func (r *records) get() *Message {
	m := r.free
	if m == nil {
		r.n++
		return new(Message)
	}
	r.free, m.next = m.next, nil
	m.checkUnused()
	return m
}

func (r *records) put(m *Message) {
	m.poison()
	if r.n > r.most { // a smaller bound would make garbage all the time in a flood that goes on
		r.n--
		return
	}
	m.next = r.free
	r.free = m
}
