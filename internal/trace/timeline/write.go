package timeline

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// event is one of the format: see "Trace Event Format", Google, 2016.
type event struct {
	Phase string         `json:"ph"`
	PID   int            `json:"pid"`
	TID   int            `json:"tid,omitempty"`
	At    micros         `json:"ts"`
	For   *micros        `json:"dur,omitempty"`
	Cat   string         `json:"cat,omitempty"`
	Name  string         `json:"name"`
	ID    string         `json:"id,omitempty"`
	Bind  string         `json:"bp,omitempty"`
	Args  map[string]any `json:"args,omitempty"`
}

// micros is a time in ns, which the format has in microseconds.
type micros int64

func (m micros) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, "%d.%03d", m/1000, m%1000), nil
}

// Tracks of a rank. Those of lanes go on from theirs.
const (
	trackSent = iota + 1
	trackReceived
	trackAsleep
	trackCalls  = 1_000
	trackReads  = 10_000
	trackDevice = 20_000
	tracks      = 100_000 // a rank
)

// writer writes events; the first error is kept.
type writer struct {
	out   *bufio.Writer
	err   error
	begun bool
}

// Write writes the timeline. What about says of it is added to the file's metadata.
func (t *Timeline) Write(to io.Writer, about map[string]any) error {
	w := &writer{out: bufio.NewWriter(to)}
	w.text(`{"displayTimeUnit":"ns","traceEvents":[`)
	for i := range t.Ranks {
		w.rank(&t.Ranks[i], &t.Activities[i])
	}
	for i, m := range t.Messages {
		w.message(m, i+1)
	}
	w.text("\n],\"otherData\":")
	w.value(about)
	w.text("}\n")
	if err := w.out.Flush(); w.err == nil {
		w.err = err
	}
	return w.err
}

func (w *writer) text(s string) {
	if w.err == nil {
		_, w.err = w.out.WriteString(s)
	}
}

func (w *writer) value(v any) {
	b, err := json.Marshal(v)
	if w.err == nil {
		w.err = err
	}
	w.text(string(b))
}

func (w *writer) event(e event) {
	if w.begun {
		w.text(",")
	}
	w.begun = true
	w.text("\n")
	w.value(e)
}

// process is the number of a rank's process in the file, where 0 has a meaning of its own.
func process(rank int) int { return rank + 1 }

func thread(rank, track int) int { return process(rank)*tracks + track }

func (w *writer) rank(r *Rank, did *Activity) {
	w.named("process_name", r.Rank, 0, fmt.Sprintf("rank %d: %s, process %d on %s", r.Rank, r.Program, r.PID, r.Host))
	w.event(event{Phase: "M", PID: process(r.Rank), Name: "process_sort_index", Args: map[string]any{"sort_index": r.Rank}})
	w.named("thread_name", r.Rank, trackSent, "messages sent")
	w.named("thread_name", r.Rank, trackReceived, "messages received")
	w.lanes(r.Rank, trackCalls, "calls", did.Calls)
	w.lanes(r.Rank, trackReads, "reads", did.Reads)
	w.lanes(r.Rank, trackDevice, "device", did.DeviceReads)
	w.lanes(r.Rank, trackAsleep, "asleep until a message", did.Sleeps)
}

func (w *writer) named(what string, rank, track int, name string) {
	e := event{Phase: "M", PID: process(rank), Name: what, Args: map[string]any{"name": name}}
	if track != 0 {
		e.TID = thread(rank, track)
		w.event(event{Phase: "M", PID: e.PID, TID: e.TID, Name: "thread_sort_index", Args: map[string]any{"sort_index": track}})
	}
	w.event(e)
}

// lanes writes slices on tracks of which the first is so named.
func (w *writer) lanes(rank, track int, name string, list []Slice) {
	for i, lane := range lanes(list) {
		title := name
		if i > 0 {
			title = fmt.Sprintf("%s %d", name, i+1)
		}
		w.named("thread_name", rank, track+i, title)
		for j := range lane {
			w.slice(rank, track+i, &lane[j])
		}
	}
}

func (w *writer) slice(rank, track int, s *Slice) {
	long := micros(s.End - s.Begin)
	e := event{Phase: "X", PID: process(rank), TID: thread(rank, track), At: micros(s.Begin), For: &long, Name: s.Name}
	if s.About {
		e.Args = map[string]any{"tag": hex(s.Tag), "bytes": s.Bytes}
		if s.Peer >= 0 {
			e.Args["rank"] = s.Peer
		}
	}
	w.event(e)
	for i := range s.Inner {
		w.slice(rank, track, &s.Inner[i])
	}
}

func hex(n uint64) string { return fmt.Sprintf("%#x", n) }
