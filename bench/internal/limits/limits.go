package limits

import (
	"errors"
	"slices"
	"time"
)

// Line is one result, in the names of the other tests. Latencies are half round trips.
type Line struct {
	Test  string  `json:"test"` // "limits"
	What  string  `json:"what" col:"what"`
	Size  int     `json:"size" col:"size"`
	Iters int     `json:"iters"`
	MidUs float64 `json:"mid_us,omitempty"` // median of the averages of 100 parts, without a clock
	MBs   float64 `json:"mb_s,omitempty"`
	Text  string  `json:"-" col:"figure"`
}

// Second is the argument of a process that is the second side; its words follow.
const Second = "-second"

// limit is one thing to measure.
type limit struct {
	name, about string
	sizes       []int
	round       time.Duration // about: what a round takes, to choose how many; 0: a copy
	oneCore     bool
}

var copies = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20}

var table = []limit{
	{name: "ring", about: "half round trip over two rings in shared memory, one line a packet", sizes: []int{8},
		round: 400 * time.Nanosecond},
	{name: "cma", about: "copying out of the other process (process_vm_readv)", sizes: copies},
	{name: "cma2", about: "the same, while the other copies the second half (process_vm_writev)", sizes: copies},
	{name: "socket", about: "half round trip over TCP loopback, spinning on non-blocking system calls", sizes: []int{8},
		round: 10 * time.Microsecond},
	{name: "yield", about: "half round trip of two processes on one processor that hand over by sched_yield", sizes: []int{8},
		round: 2 * time.Microsecond, oneCore: true},
}

// Names of the limits.
func Names() []string {
	var names []string
	for _, l := range table {
		names = append(names, l.name)
	}
	return names
}

// About tells what is measured, by name.
func About(name string) string {
	i := slices.IndexFunc(table, func(l limit) bool { return l.name == name })
	return table[i].about
}

// sampleTime is what a measurement takes where the number of messages is left open.
const sampleTime = 200 * time.Millisecond

// iters for a size: copies are taken for 10 GB/s.
func (l *limit) iters(size int) int {
	round := l.round
	if round == 0 {
		round = time.Duration(size/10 + 1)
	}
	return max(20, int(sampleTime/round))
}

var errUnknown = errors.New("there is no such limit")
