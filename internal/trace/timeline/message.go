package timeline

import "fmt"

// message writes a message: a slice of its whole life, with what happens in it, and where both ends
// are known an arrow between them.
func (w *writer) message(m *Message, id int) {
	name := fmt.Sprintf("%#x", id)
	known, pid := m.Out, process(m.From)
	if !known.Known {
		known, pid = m.In, process(m.To)
	}
	args := map[string]any{"from": m.From, "to": m.To, "comm": known.Comm, "tag": hex(known.Tag), "bytes": max(m.Out.Bytes, m.In.Bytes)}
	if m.Device {
		args["matched by"] = "device"
	}
	if m.Failed {
		args["failed"] = true
	}
	step := func(phase, what string, at int64, args map[string]any) {
		w.event(event{Phase: phase, PID: pid, At: micros(at), Cat: m.Protocol, Name: what, ID: name, Args: args})
	}
	step("b", m.Protocol, m.first(), args)
	for _, s := range m.steps() {
		step("n", s.name, s.at, nil)
	}
	step("e", m.Protocol, m.last(), nil)
	if m.Sent != 0 {
		w.anchor(m.From, trackSent, m.Sent, fmt.Sprintf("to %d, %d bytes", m.To, m.Out.Bytes))
	}
	if m.Arrow {
		w.event(event{Phase: "s", PID: process(m.From), TID: thread(m.From, trackSent), At: micros(m.Sent), Cat: "message", Name: "message", ID: name})
	}
	if m.Received != 0 {
		w.anchor(m.To, trackReceived, m.Received, fmt.Sprintf("from %d, %d bytes", m.From, m.In.Bytes))
	}
	if m.Arrow {
		w.event(event{Phase: "f", Bind: "e", PID: process(m.To), TID: thread(m.To, trackReceived), At: micros(m.Received), Cat: "message", Name: "message", ID: name})
	}
}

// anchor is what an arrow begins or ends at: the format has none between slices of other kinds.
func (w *writer) anchor(rank, track int, at int64, name string) {
	short := micros(1)
	w.event(event{Phase: "X", PID: process(rank), TID: thread(rank, track), At: micros(at), For: &short, Name: name})
}

type step struct {
	name string
	at   int64
}

// steps is what happens in the life of a message, as far as it is known.
func (m *Message) steps() (list []step) {
	for _, s := range []step{{"post", m.Posted}, {"sent", m.Sent}, {"arrived", m.Arrived}, {"match", m.Matched}, {"first byte", m.Reads}, {"received", m.Received}, {"send ended", m.Done}} {
		if s.at != 0 {
			list = append(list, s)
		}
	}
	return list
}
