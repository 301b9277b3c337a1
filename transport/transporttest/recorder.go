package transporttest

import (
	"bytes"
	"fmt"

	"github.com/tagmatch/tagmatch/transport"
)

// Event is one call of a Sink.
type Event struct {
	Kind   string // the Sink's method: "eager", "rndv", "fin", "read", "lost", "matched", ...
	Src    int
	AppCtx uint32
	Tag    uint64
	Data   []byte // payload, control message, or software header
	VA     uint64
	RKey   uint32
	Len    uint64
	ID     uint64
	Err    error
	OK     bool // of "deleted"
}

func (e Event) String() string {
	return fmt.Sprintf("%s src=%d ctx=%d tag=%#x %d bytes va=%#x rkey=%d len=%d id=%d err=%v", e.Kind, e.Src, e.AppCtx, e.Tag,
		len(e.Data), e.VA, e.RKey, e.Len, e.ID, e.Err)
}

func (e Event) equal(o Event) bool {
	return e.Kind == o.Kind && e.Src == o.Src && e.AppCtx == o.AppCtx && e.Tag == o.Tag && bytes.Equal(e.Data, o.Data) &&
		e.VA == o.VA && e.RKey == o.RKey && e.Len == o.Len
}

// Recorder is a Sink that records its calls.
type Recorder struct {
	Events []Event
	byKind map[string][]Event // the same, for tests that ask at every poll
	after  func()             // is called for each message, if not nil
	met    map[int][]byte     // greetings, of the ranks that are connected
	refuse error              // of Connected
}

func (r *Recorder) add(e Event) {
	r.Events = append(r.Events, e)
	if r.byKind == nil {
		r.byKind = map[string][]Event{}
	}
	r.byKind[e.Kind] = append(r.byKind[e.Kind], e)
}

// Greeting is the rank that is greeted, in so many bytes as are allowed.
func (r *Recorder) Greeting(peer int) []byte {
	return bytes.Repeat([]byte{byte(peer)}, transport.MaxGreeting)
}

// Connected notes that a rank is connected: no event, as messages may have come before.
func (r *Recorder) Connected(peer int, greeting []byte) error {
	if r.met == nil {
		r.met = map[int][]byte{}
	}
	r.met[peer] = bytes.Clone(greeting)
	return r.refuse
}

// Eager records a message with a copy of its payload.
func (r *Recorder) Eager(src int, appCtx uint32, tag uint64, payload []byte) {
	r.add(Event{Kind: "eager", Src: src, AppCtx: appCtx, Tag: tag, Data: bytes.Clone(payload)})
	if r.after != nil {
		r.after()
	}
}

// Rndv records a request with a copy of its software header.
func (r *Recorder) Rndv(src int, h *transport.RndvHdr) {
	r.add(Event{Kind: "rndv", Src: src, AppCtx: h.AppCtx, Tag: h.Tag, Data: bytes.Clone(h.Extra), VA: h.VA, RKey: h.RKey, Len: h.Len})
}

// Fin records it.
func (r *Recorder) Fin(src int, appCtx uint32) { r.add(Event{Kind: "fin", Src: src, AppCtx: appCtx}) }

// Ctrl records a copy of the message.
func (r *Recorder) Ctrl(src int, msg []byte) {
	r.add(Event{Kind: "ctrl", Src: src, Data: bytes.Clone(msg)})
}

// ReadDone records it.
func (r *Recorder) ReadDone(id uint64, err error) { r.add(Event{Kind: "read", ID: id, Err: err}) }

// PeerLost records it.
func (r *Recorder) PeerLost(peer int, err error) { r.add(Event{Kind: "lost", Src: peer, Err: err}) }

// Matched records it.
func (r *Recorder) Matched(id uint64, src int, appCtx uint32, tag uint64) {
	r.add(Event{Kind: "matched", ID: id, Src: src, AppCtx: appCtx, Tag: tag})
}

// Delivered records it.
func (r *Recorder) Delivered(id uint64, n uint64, err error) {
	r.add(Event{Kind: "delivered", ID: id, Len: n, Err: err})
}

// Incomplete records the request with a copy of its software header.
func (r *Recorder) Incomplete(id uint64, h *transport.RndvHdr) {
	r.add(Event{Kind: "incomplete", ID: id, AppCtx: h.AppCtx, Tag: h.Tag, Data: bytes.Clone(h.Extra), VA: h.VA, RKey: h.RKey,
		Len: h.Len})
}

// Deleted records it.
func (r *Recorder) Deleted(id uint64, ok bool) { r.add(Event{Kind: "deleted", ID: id, OK: ok}) }

// of returns the events of a kind, to be read only.
func (r *Recorder) of(kind string) []Event { return r.byKind[kind] }

// forget drops all records.
func (r *Recorder) forget() { *r = Recorder{met: r.met} }

// messages returns the messages of src, in order.
func (r *Recorder) messages(src int) []Event {
	var out []Event
	for _, e := range r.Events {
		switch e.Kind {
		case "eager", "rndv", "fin", "ctrl":
			if e.Src == src {
				out = append(out, e)
			}
		}
	}
	return out
}
