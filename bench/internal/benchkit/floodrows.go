package benchkit

import (
	"errors"
	"fmt"
)

var whiles = []string{WhileIdle, WhileRecv, whileBoth}

// FloodRows are the jobs of the test: one for each peak to measure.
func FloodRows(f Flags) []Flags {
	var rows []Flags
	for _, device := range either(f.Device, "auto", "shm", "tcp") {
		for _, transport := range either(f.Transport, "auto", "rc", "tmsrq") {
			for _, size := range f.Sizes {
				for _, while := range either(f.While, whileBoth, WhileIdle, WhileRecv) {
					row := f
					row.Device, row.Transport, row.Sizes, row.While = device, transport, Sizes{size}, while
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

// floodRecords is the memory of a message besides its bytes, in all processes together: its
// operation, request and index at the sender, its record at the receiver, and garbage.
const floodRecords = 1 << 10

// fits returns an error if the host lacks the memory for a row: the kernel would kill some process
// otherwise.
func (c Command) fits(row Flags) error {
	if !c.Flood {
		return nil
	}
	free, err := available()
	if err != nil {
		return err
	}
	eager, err := row.bytes("EagerLimit")
	if err != nil {
		return err
	}
	for _, size := range row.Sizes {
		n := row.Iters
		if n == 0 {
			n = c.Messages(size)
		}
		each := int64(floodRecords)
		// Larger messages stay with their senders, which share buffers.
		if row.While == WhileIdle && int64(size) <= eager {
			each += int64(size)
		}
		if need := int64(n) * each; need > free {
			return fmt.Errorf("%d messages of %s take up to %d MiB of memory, %d are available: give fewer by -messages",
				n, sizeName(size), need>>20, free>>20)
		}
	}
	return nil
}

// verdict is an error if the peak exceeded the bound; other tests, whose Flood is nil, have none.
func (r *Flood) verdict() error {
	if r == nil || r.Within {
		return nil
	}
	return fmt.Errorf("the flooded rank had %d bytes in memory, its bound is %d bytes", r.judged(), r.Bound)
}

// one returns an error, under a launcher, for a test that takes several jobs.
func (c Command) one(f Flags) error {
	if c.Flood && (f.While == whileBoth || len(f.Sizes) != 1) {
		return errors.New("a process has one peak of memory: under a launcher give one of -sizes, and -while idle or recv")
	}
	return nil
}

var floodTable = layout{
	of: func(r *Result) bool { return r.Flood != nil },
	note: func(r *Result) string {
		return fmt.Sprintf("memory in MiB: peak of the flooded rank before it receives, and at the end; bound (UnexpectedLimit %d, and %d) is for the first\n"+
			"# where it was idle, which then receives from the last message to the first, and for both else; counts are of all %d senders",
			r.Flood.Limit>>20, FloodConstant>>20, r.Flood.Senders)
	},
	columns: []column{sizeColumn, deviceColumn, transportColumn,
		{"while", 6, func(r *Result) string { return r.Flood.While }},
		roundsColumn("messages", 10),
		whole("peak", 8, func(r *Result) int64 { return r.Flood.Peak >> 20 }),
		whole("bound", 8, func(r *Result) int64 { return r.Flood.Bound >> 20 }),
		whole("end", 8, func(r *Result) int64 { return r.Flood.EndPeak >> 20 }),
		whole("held up", 10, func(r *Result) uint64 { return r.Flood.HeldUp }),
		whole("wants", 10, func(r *Result) uint64 { return r.Flood.WantsReceived }),
		whole("released", 10, func(r *Result) uint64 { return r.Flood.Released }),
		{"k msg/s", 10, func(r *Result) string {
			text := fmt.Sprintf("%10.1f", r.MsgS/1e3)
			if !r.Flood.Within {
				text += " BEYOND ITS BOUND"
			}
			return text
		}}},
}
