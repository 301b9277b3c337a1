package top

import (
	"cmp"
	"slices"
	"time"
)

// Sample is what is known of a rank at a moment.
type Sample struct {
	Rank, PID int
	Host      string
	Silent    string // why the rank has not answered: then nothing of what follows is known
	At        time.Time
	Levels
	Counts
}

// Counts are counters of a rank, since it was started.
type Counts struct {
	Sent, Received           uint64 // messages
	SentBytes, ReceivedBytes uint64
	Offloaded                uint64        // of Received: matched by the device
	Waited                   time.Duration // in calls of the library, by all goroutines together
	CPU                      time.Duration // of its process
}

// Levels are present values.
type Levels struct {
	Posted          int   `json:"posted"`           // receives that wait for a message
	Unexpected      int   `json:"unexpected"`       // messages that wait for a receive
	UnexpectedBytes int64 `json:"unexpected_bytes"` // their memory
	UnexpectedLimit int64 `json:"unexpected_limit"` // bytes
}

// Rates are what two samples come to.
type Rates struct {
	Seconds       float64 `json:"seconds"`         // between the samples
	Sent          float64 `json:"sent_per_second"` // messages
	Received      float64 `json:"received_per_second"`
	SentBytes     float64 `json:"sent_bytes_per_second"`
	ReceivedBytes float64 `json:"received_bytes_per_second"`
	Offloaded     float64 `json:"offloaded"` // part of the received messages; 0 where there are none
	Waiting       float64 `json:"waiting"`   // part of the time, summed over goroutines
	CPU           float64 `json:"cpu"`       // processors
}

// Row is a rank in the table.
type Row struct {
	Rank    int    `json:"rank"`
	PID     int    `json:"pid"`
	Host    string `json:"host"`
	Silent  string `json:"silent,omitempty"` // why the rank has not answered
	Late    bool   `json:"late,omitempty"`   // see Table.Late
	*Levels        // nil where the rank has not answered
	*Rates         // nil where two samples of the same World are missing
}

// Table is the ranks of a job.
type Table struct {
	At   time.Time `json:"at"`
	Rows []Row     `json:"ranks"` // by rank

	// Late is the late rank, for which the others wait: the one that waits the least itself, where
	// half of the ranks wait for lateBy of the time longer, or more. -1: there is none.
	Late int `json:"late"`
}

// lateBy is so much that no rank is marked in a job whose ranks wait for about as long.
const lateBy = 0.2

// Of makes the table of samples, and of those before them. A rank that was not there before, or has
// started again since, has no rates; one that is not there any more is left out.
func Of(now, before []Sample) Table {
	t := Table{Late: -1}
	old := make(map[int]*Sample, len(before))
	for i := range before {
		old[before[i].Rank] = &before[i]
	}
	for i := range now {
		s := &now[i]
		r := Row{Rank: s.Rank, PID: s.PID, Host: s.Host, Silent: s.Silent}
		if s.Silent == "" {
			r.Levels, r.Rates = &s.Levels, rates(s, old[s.Rank])
		}
		if t.At.Before(s.At) {
			t.At = s.At
		}
		t.Rows = append(t.Rows, r)
	}
	slices.SortStableFunc(t.Rows, func(a, b Row) int { return a.Rank - b.Rank })
	t.markLate()
	return t
}

// rates is nil where the second sample does not continue the first. Counters of 64 bits do not
// overflow: one that is less than before belongs to another World.
func rates(s, old *Sample) *Rates {
	if old == nil || old.Silent != "" || old.PID != s.PID || !s.At.After(old.At) || s.below(&old.Counts) {
		return nil
	}
	seconds := s.At.Sub(old.At).Seconds()
	per := func(now, before uint64) float64 { return float64(now-before) / seconds }
	r := &Rates{Seconds: seconds,
		Sent: per(s.Sent, old.Sent), Received: per(s.Received, old.Received),
		SentBytes: per(s.SentBytes, old.SentBytes), ReceivedBytes: per(s.ReceivedBytes, old.ReceivedBytes),
		Waiting: (s.Waited - old.Waited).Seconds() / seconds, CPU: (s.CPU - old.CPU).Seconds() / seconds,
	}
	if r.Received > 0 {
		r.Offloaded = min(1, per(s.Counts.Offloaded, old.Counts.Offloaded)/r.Received) // matched comes before received
	}
	return r
}

// below reports whether any counter is less than before.
func (c *Counts) below(old *Counts) bool {
	return c.Sent < old.Sent || c.Received < old.Received || c.SentBytes < old.SentBytes || c.ReceivedBytes < old.ReceivedBytes ||
		c.Offloaded < old.Offloaded || c.Waited < old.Waited || c.CPU < old.CPU
}

func (t *Table) markLate() {
	var rated []*Row
	for i := range t.Rows {
		if t.Rows[i].Rates != nil {
			rated = append(rated, &t.Rows[i])
		}
	}
	if len(rated) == 0 {
		return
	}
	slices.SortStableFunc(rated, func(a, b *Row) int { return cmp.Compare(a.Waiting, b.Waiting) })
	if rated[len(rated)/2].Waiting-rated[0].Waiting >= lateBy {
		rated[0].Late = true
		t.Late = rated[0].Rank
	}
}
