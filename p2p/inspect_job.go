package p2p

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
)

// A question to all ranks of a job comes to the door of one, which asks the others through its
// Bootstrap: see docs/design/bootstrap.md.

const (
	// jobPatience is how long others have to reply.
	jobPatience = time.Second

	// mostReply bounds a reply when it is unpacked.
	mostReply = 1 << 20
)

// reply is what a rank replies to others, compressed.
type reply struct {
	Lines  []json.RawMessage `json:"lines"`
	Behind []inspect.Part    `json:"behind,omitempty"` // ranks of this host that cannot reply, without lines
}

// replier answers questions that come through the Bootstrap as the door does.
func replier(me doors.Name, answer doors.Answer) func(question string) []byte {
	return func(question string) []byte {
		var r reply
		for _, line := range answer(question) {
			b, err := json.Marshal(line)
			if err != nil {
				continue // the rank's door says why
			}
			r.Lines = append(r.Lines, b)
		}
		host := hostName()
		for _, h := range doors.Behind(me) {
			r.Behind = append(r.Behind, inspect.Part{Rank: h.Rank, Why: h.Why, Host: host, PID: h.PID})
		}
		return pack(&r)
	}
}

func pack(r *reply) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err == nil {
		err = errors.Join(json.NewEncoder(w).Encode(r), w.Close())
	}
	if err != nil {
		return nil // which is told as an answer that nobody can read
	}
	return b.Bytes()
}

// unpack is the inverse of pack. What does not come from there is an error.
func unpack(b []byte) (r reply, err error) {
	text, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(b)), mostReply))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// relayed asks all ranks, and gives a Part for each.
func (w *World) relayed(request string) doors.Stream {
	return func(emit func(line any) error) {
		ctx, cancel := context.WithTimeout(context.Background(), jobPatience)
		defer cancel()
		h := hearing{size: w.size, heard: map[int]bool{}, settled: map[int]bool{}, halted: map[int]inspect.Part{}, emit: emit}
		_ = w.parts.boot.Ask(ctx, request, func(r bootstrap.Reply) (more bool) {
			h.take(r)
			return h.failed == nil && len(h.settled) < w.size
		})
		for rank := 0; rank < w.size && h.failed == nil; rank++ {
			if !h.heard[rank] {
				h.failed = emit(w.unheard(rank, &h))
			}
		}
	}
}

// hearing is what has been heard of the ranks of a job.
type hearing struct {
	size    int                  // of the job
	heard   map[int]bool         // they have replied, which was passed on
	settled map[int]bool         // they are not waited for any more
	halted  map[int]inspect.Part // of some of the others: why they do not reply
	emit    func(line any) error
	failed  error // of emit: who has asked is gone
}

// take takes a reply.
func (h *hearing) take(r bootstrap.Reply) {
	h.settled[r.Rank] = true
	p := inspect.Part{Rank: r.Rank, Why: whyNot(r.Why)}
	if r.Why == bootstrap.WhyUnheard { // another rank of its host may know why
		return
	}
	if r.Why == "" {
		said, err := unpack(r.Body)
		if err != nil {
			p.Why = "its answer cannot be read: run the same build on all ranks"
		}
		p.Lines = said.Lines
		for _, b := range said.Behind {
			if b.Rank < 0 || b.Rank >= h.size {
				continue // else what one rank says would count for others
			}
			h.halted[b.Rank] = b
			h.settled[b.Rank] = h.settled[b.Rank] || b.Why == doors.Stopped // in a system call it may be for a moment only
		}
	}
	h.heard[r.Rank] = true
	h.failed = h.emit(p)
}

// whyNot says why a rank has no answer, in the words of package doors.
func whyNot(why string) string {
	switch {
	case why == bootstrap.WhyLeft:
		return doors.Left
	case why == bootstrap.WhyDeaf:
		return "TAGMATCH_INSPECT is off for it"
	case strings.Contains(why, bootstrap.WhyEnded), strings.Contains(why, syscall.ECONNRESET.Error()):
		return doors.Gone
	}
	return why
}

// unheard is what is known of a rank that has not replied.
func (w *World) unheard(rank int, h *hearing) inspect.Part {
	if p, known := h.halted[rank]; known {
		return p
	}
	p := inspect.Part{Rank: rank, Why: "it has not answered within a second", Host: w.hostOf(rank)}
	if rank != 0 && !h.heard[0] {
		p.Why = "rank 0 does not answer, through which it is asked"
	}
	return p
}

// hostOf is the name of a rank's host by its card; empty where there is none.
func (w *World) hostOf(rank int) string {
	value, err := w.parts.boot.Get(context.Background(), rank, cardKey)
	if err != nil {
		return ""
	}
	c, err := decodeCard(value)
	if err != nil {
		return ""
	}
	return string(c.host)
}
