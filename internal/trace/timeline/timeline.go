package timeline

import (
	"cmp"
	"slices"

	"github.com/tagmatch/tagmatch/internal/trace"
)

// Rank is what was recorded of one rank. The records are in order of time.
type Rank struct {
	trace.Answer
	Events []trace.Record
}

// Protocols of a Message.
const (
	Eager      = "eager"
	Rendezvous = "rendezvous"
)

// Message is a message, as far as it was recorded. Times are in ns since the Timeline's begin; 0
// stands for one that is not known.
type Message struct {
	From, To int
	Number   uint64 // see trace.Record
	Protocol string
	Out, In  End
	Arrow    bool // it was sent and received

	Posted, Sent, Done                int64 // at the sender
	Arrived, Matched, Reads, Received int64 // at the receiver; Reads is when its bytes begin to come, of a rendezvous
	Failed                            bool
	Device                            bool // the receiver's device has matched it
}

// End is what one end says of a message; Known where it was recorded.
type End struct {
	Known bool
	Comm  string
	Tag   uint64
	Bytes uint64
}

// Slice is a time in which something was done. Inner ones are within it.
type Slice struct {
	Name       string
	Begin, End int64
	Peer       int // -1: any, or none
	Tag, Bytes uint64
	About      bool // Peer, Tag and Bytes are known
	Inner      []Slice
}

// Activity is what a rank did beside messages: each list is in order of its begins.
type Activity struct {
	Calls, Reads, DeviceReads, Sleeps []Slice
}

// Timeline is what was recorded of a job.
type Timeline struct {
	Ranks      []Rank
	Activities []Activity // of each of them
	Messages   []*Message // in order of their first time
	Begin      int64      // ns since 1970, by the clock of the first rank's host
	Clocks     []Clock    // of the hosts, in the order of their first ranks
}

type key struct {
	from, to int
	number   uint64
}

// longest is the longest time in ns that a record, or the begin of a rank's recording, may be after
// another one: 73 years. Where ranks say more, which they may in error or in malice, it is cut.
const longest = 1 << 61

// New puts records together. Ranks are of the same job, each once.
func New(ranks []Rank) *Timeline {
	t := &Timeline{Ranks: ranks, Clocks: clocksOf(ranks)}
	t.read()
	if len(t.Clocks) > 1 {
		t.align()
		t.read()
	}
	return t
}

// read reads the records of all ranks, by the clocks.
func (t *Timeline) read() {
	starts := t.starts()
	t.Begin, t.Activities, t.Messages = slices.Min(starts), nil, nil
	sent := map[key]*Message{}
	var ins []*Message
	for i := range t.Ranks {
		r := newReader(&t.Ranks[i], min(max(starts[i]-t.Begin, 0), longest)+1)
		t.Activities = append(t.Activities, r.all())
		for _, m := range r.outs {
			sent[m.key()] = m
		}
		t.Messages, ins = append(t.Messages, r.outs...), append(ins, r.ins()...)
	}
	for _, m := range ins {
		if out := sent[m.key()]; out != nil {
			out.join(m)
		} else {
			t.Messages = append(t.Messages, m)
		}
	}
	slices.SortFunc(t.Messages, func(a, b *Message) int {
		return cmp.Or(cmp.Compare(a.first(), b.first()), a.From-b.From, a.To-b.To, cmp.Compare(a.Number, b.Number))
	})
}

func (m *Message) key() key { return key{m.From, m.To, m.Number} }

// join adds what the receiver says to what the sender does.
func (m *Message) join(in *Message) {
	m.In, m.Device = in.In, in.Device
	m.Arrived, m.Matched, m.Reads, m.Received = in.Arrived, in.Matched, in.Reads, in.Received
	m.Arrow = m.Received != 0
}

// first and last are the first and the last time that is known of a message.
func (m *Message) first() int64 { return slices.MinFunc(m.steps(), byTime).at }
func (m *Message) last() int64  { return slices.MaxFunc(m.steps(), byTime).at }

func byTime(a, b step) int { return cmp.Compare(a.at, b.at) }
