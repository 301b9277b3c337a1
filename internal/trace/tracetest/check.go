// Package tracetest checks files in the JSON format of Chrome's tracing, for tests.
package tracetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// File is what is in a file.
type File struct {
	Arrows, Messages int
	Names            map[string]int // slices by name
	About            map[string]any
}

type event struct {
	Phase string `json:"ph"`
	PID   int    `json:"pid"`
	TID   int    `json:"tid"`
	At    *nanos `json:"ts"`
	For   *nanos `json:"dur"`
	Cat   string `json:"cat"`
	Name  string `json:"name"`
	ID    string `json:"id"`
	Bind  string `json:"bp"`
}

// nanos is a time, which the format has in microseconds.
type nanos int64

func (n *nanos) UnmarshalJSON(b []byte) error {
	us, err := strconv.ParseFloat(string(b), 64)
	*n = nanos(math.Round(us * 1000))
	return err
}

// end is when a slice ends.
func (e *event) end() nanos { return *e.At + *e.For }

type file struct {
	File
	threads map[[2]int][]*event // slices
	named   map[[2]int]bool     // processes, with thread 0, and threads
	begins  map[string]*event   // of messages, by id
	last    map[string]nanos
	ended   map[string]bool
	starts  map[string]*event // of arrows, by id
	ends    map[string]*event
}

// Check reads a file and returns what is in it. The error names the first thing that is not as the
// format, or Perfetto, wants it.
func Check(data []byte) (File, error) {
	var in struct {
		Events []event        `json:"traceEvents"`
		Other  map[string]any `json:"otherData"`
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return File{}, err
	}
	f := file{File: File{Names: map[string]int{}, About: in.Other}, threads: map[[2]int][]*event{}, named: map[[2]int]bool{},
		begins: map[string]*event{}, last: map[string]nanos{}, ended: map[string]bool{}, starts: map[string]*event{}, ends: map[string]*event{}}
	for i := range in.Events {
		if err := f.add(&in.Events[i]); err != nil {
			return File{}, fmt.Errorf("event %d: %w", i, err)
		}
	}
	return f.File, cmp.Or(f.checkSlices(), f.checkMessages(), f.checkArrows())
}

func (f *file) add(e *event) error {
	if e.PID <= 0 || e.At == nil || *e.At < 0 || e.Name == "" {
		return fmt.Errorf("it has no process, time or name: %+v", e)
	}
	id := e.Cat + e.ID
	switch e.Phase {
	case "M":
		f.named[[2]int{e.PID, e.TID}] = true
	case "X":
		if e.TID == 0 || e.For == nil || *e.For < 0 {
			return fmt.Errorf("a slice without thread or duration: %+v", e)
		}
		f.Names[e.Name]++
		f.threads[[2]int{e.PID, e.TID}] = append(f.threads[[2]int{e.PID, e.TID}], e)
	case "b":
		if f.begins[id] != nil {
			return fmt.Errorf("message %s begins twice", id)
		}
		f.begins[id], f.last[id] = e, *e.At
		f.Messages++
	case "n", "e":
		b := f.begins[id]
		if b == nil || f.ended[id] || *e.At < *b.At || e.PID != b.PID || e.Phase == "e" && *e.At < f.last[id] {
			return fmt.Errorf("%s of message %s is not between its begin and its end", e.Name, id)
		}
		f.last[id], f.ended[id] = max(f.last[id], *e.At), e.Phase == "e"
	case "s":
		f.starts[e.ID] = e
	case "f":
		f.ends[e.ID] = e
		f.Arrows++
		if e.Bind != "e" {
			return fmt.Errorf("arrow %s is bound to the next slice", e.ID)
		}
	default:
		return fmt.Errorf("phase %q", e.Phase)
	}
	return nil
}

// checkSlices checks that those of a thread are within each other, or apart.
func (f *file) checkSlices() error {
	for thread, list := range f.threads {
		if !f.named[thread] || !f.named[[2]int{thread[0], 0}] {
			return fmt.Errorf("thread %v, or its process, has no name", thread)
		}
		slices.SortStableFunc(list, func(a, b *event) int { return cmp.Or(cmp.Compare(*a.At, *b.At), cmp.Compare(*b.For, *a.For)) })
		var open []*event
		for _, e := range list {
			for len(open) > 0 && open[len(open)-1].end() <= *e.At {
				open = open[:len(open)-1]
			}
			if len(open) > 0 && e.end() > open[len(open)-1].end() {
				return fmt.Errorf("slices %q and %q of thread %v overlap, from %d and %d ns on", open[len(open)-1].Name, e.Name, thread, *open[len(open)-1].At, *e.At)
			}
			open = append(open, e)
		}
	}
	return nil
}

func (f *file) checkMessages() error {
	for id := range f.begins {
		if !f.ended[id] {
			return fmt.Errorf("message %s does not end", id)
		}
	}
	return nil
}

func (f *file) checkArrows() error {
	for id, s := range f.starts {
		e := f.ends[id]
		switch {
		case e == nil:
			return fmt.Errorf("arrow %s has no end", id)
		case *e.At < *s.At:
			return fmt.Errorf("arrow %s goes back in time", id)
		case !f.within(s) || !f.within(e):
			return fmt.Errorf("arrow %s is bound to no slice", id)
		}
	}
	if len(f.starts) != len(f.ends) {
		return fmt.Errorf("%d arrows begin, %d end", len(f.starts), len(f.ends))
	}
	return nil
}

// within reports whether a slice of its thread begins with e.
func (f *file) within(e *event) bool {
	list := f.threads[[2]int{e.PID, e.TID}]
	_, ok := slices.BinarySearchFunc(list, *e.At, func(s *event, at nanos) int { return cmp.Compare(*s.At, at) })
	return ok
}
