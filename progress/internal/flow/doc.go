// Package flow is flow control between two ranks, as a machine for each direction: a Sender holds
// up sends to a peer, a Receiver decides what a peer may send. They know neither engine, lock nor
// transport. Their owner says what has happened, posts the sends that may go, and tells the peer
// what is due.
//
// Every message takes credit at its receiver (package credit). A send that credit does not cover
// waits, and all later ones to that peer behind it: the queue is held up, and the peer gets one
// HELD. It answers with credit, or with a WANT for each receive that waits there and that this
// sender could satisfy. A WANT permits the queue to be sent, in order and beyond its credit, up to
// and including the first message that matches it, which may be queued later. So the bound yields
// to a receive that waits, and to nothing else.
//
// An episode is the time from when the queue is held up until it is empty. At its end the WANTs
// become void, and the peer gets another HELD that says so. Episodes are numbered: odd ones are
// those in which the queue is held up.
//
// A WANT binds neither side: where its receive gets another message or is cancelled, the next
// receive takes its slot, or one message arrives beyond the bound.
//
// The tests explore all that two machines can do with few messages and receives. The model
// progress/models/held.pml does so with more, and with faults.
//
// Concurrency: a Memory and its Receivers have one owner at a time, and so has a Sender; the engine
// calls them under its lock. Nothing allocates while nothing waits.
package flow

// Slots is for how many receives a peer can have WANTs at the same time. For more it gets one for
// its whole queue.
const Slots = 16

// Slots of a Want that stand for no receive.
const (
	None = 0xfe // it is about credit only
	All  = 0xff // for everything that is held up
)

// Held is what HELD says.
type Held struct {
	Episode uint32 // odd while sends are held up
	Allowed uint64 // credit that the sender knows of, in all
	Charged uint64 // credit that it has used, in all
}

// Want is what WANT says.
type Want struct {
	Episode   uint32 // that it answers
	Slot      uint8  // below Slots, None or All
	Allowed   uint64 // credit of the sender, in all
	Tag, Mask uint64 // of the receive
}

func matches(want, mask, tag uint64) bool { return (want^tag)&mask == 0 }

func odd(episode uint32) bool { return episode&1 != 0 }
