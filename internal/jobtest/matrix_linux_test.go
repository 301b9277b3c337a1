package jobtest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The matrix of docs/reliability.md: each fault in each phase of a job, over each device and
// transport. This is its design.
//
// A job has three ranks, processes of their own. Rank 1 is the victim. Rank 2 is its partner: the
// two do what the phase says. Rank 0 serves the launcher's store, and waits. Each rank has a
// receive from each other one posted all the time, its watch.
//
//	fault   what happens to the victim, in matrix_faults_linux_test.go
//	phase   what the ranks do then, in matrix_phases_linux_test.go; a rank says when it is there
//	cell    a fault, a phase, a device and a transport; what must come of it is a function of it
//	trial   a job in which the test injects the fault up to 20 ms after all ranks are there
//
// What must come of a cell: each rank loses those that the cell's outcome names, and no other. Its
// operations end, each one once, with success and right data or with a PeerError that names the
// right ranks, within the bound that package p2p documents. Then all ranks that have not lost each
// other go on: messages of all sizes, receives from any source, a Comm of their own. At last each
// rank leaves, and has no descriptor, goroutine or mapping more than before Init. A process holds
// its memfds, abstract sockets and connections by descriptors, so that nothing else can be left but
// a process, for which the test waits, and the file of the rendezvous, which must be gone too.
//
// Ranks and test speak in lines: words of the test on the standard input, reports of the ranks on
// the standard output (matrix_rank_linux_test.go). Times are of the one clock of this host.

// cell is a place in the matrix.
type cell struct {
	fault     *fault
	phase     phase
	device    string
	transport string
}

func (c cell) String() string {
	return fmt.Sprintf("%s/%s/%s/%s", c.fault.name, c.phase, c.device, c.transport)
}

// The ranks of a job.
const (
	server = iota
	victim
	partner
	matrixRanks
)

// impossible says why there is no such cell; "" where there is one.
func (c cell) impossible() string {
	switch {
	case c.fault.network && c.device == "shm":
		return "ranks of one host have no network between them"
	case c.fault.outcome == closed && c.phase == joining:
		return "there is no World to close before Init returns"
	case c.fault.outcome == reset && c.phase == joining:
		return "ranks that join have no connection to each other"
	}
	return ""
}

// outcome says who loses whom.
type outcome int

const (
	unharmed outcome = iota // nobody
	ended                   // the others lose the victim, whose process has ended
	closed                  // the others lose the victim, which has closed its World
	apart                   // the others lose the victim, and it loses them
	reset                   // the victim and its partner lose each other
	open                    // the victim and others lose each other or do not: both are documented
)

// outcome is what must come of the cell.
func (c cell) outcome() outcome {
	switch {
	case c.phase == connecting && c.fault.outcome == reset:
		return open // a connection that is being made may be tried again
	case c.phase == connecting && c.fault.shortage:
		return reset
	case c.phase == joining && c.fault.shortage:
		return open // Init fails where it needs what is refused
	}
	return c.fault.outcome
}

// loses lists the ranks that a rank must lose.
func (c cell) loses(rank int) []int {
	switch o := c.outcome(); {
	case (o == ended || o == closed || o == apart) && rank != victim:
		return []int{victim}
	case o == apart:
		return []int{server, partner}
	case o == reset && rank != server:
		return []int{victim + partner - rank}
	}
	return nil
}

// mayLose lists the ranks that a rank may name as lost.
func (c cell) mayLose(rank int) []int {
	if c.outcome() == open {
		c = cell{fault: &fault{outcome: apart}, phase: idle}
	}
	return c.loses(rank)
}

// Times of the trials. PeerTimeout is the shortest that can be had.
const (
	matrixPeerTimeout = 6 * time.Second
	matrixJoinTimeout = 12 * time.Second

	// slack is added to each bound: the processors are shared by many trials, and those of CI by
	// other tests.
	slack = 6 * time.Second
)

// bound is the documented time in which those that lose a rank know it; 0: nobody is lost.
func (c cell) bound() time.Duration {
	switch {
	case c.outcome() == unharmed:
		return 0
	case c.phase == joining: // by those that have lost it; nobody is lost while it takes longer than this
		return max(matrixJoinTimeout, 3*c.fault.bound)
	case c.fault.shortage && c.device == "tcp":
		return matrixPeerTimeout // who dials the victim finds a listener that does not answer
	case c.fault.bound != 0 && c.phase == leaving:
		return 2 * c.fault.bound
	case c.fault.bound != 0:
		return c.fault.bound
	case c.phase == agreeing:
		return 1500 * time.Millisecond
	default:
		return time.Second
	}
}

// joinTimeout is how long ranks wait for each other to join.
func (c cell) joinTimeout() time.Duration {
	if c.outcome() == unharmed {
		return 5 * time.Minute
	}
	return matrixJoinTimeout
}

// Flags of TestMatrix.
var (
	cellsFlag  = flag.String("cells", "few", "cells of the matrix to play: few (one for each fault), pairwise or all")
	trialsFlag = flag.Int("trials", 1, "trials of each cell")
	onlyFlag   = flag.String("only", "", "part of the names of the cells to play, such as kill/eager or /tcp/")
	logFlag    = flag.String("trial-log", "", "file to which the outcome of each trial is added, a JSON value a line")
	pageFlag   = flag.String("page", "", "file to write the table of all trials in -trial-log to")
)

// TestMatrix plays cells of the matrix.
func TestMatrix(t *testing.T) {
	t.Parallel()
	cells := possible(*cellsFlag)
	if len(cells) == 0 {
		t.Fatalf("-cells %s: use few, pairwise or all", *cellsFlag)
	}
	// What lasts longest begins first.
	slices.SortStableFunc(cells, func(a, b cell) int { return int(b.fault.lasts - a.fault.lasts) })
	log := openTrialLog(t, *logFlag)
	t.Run("cells", func(t *testing.T) {
		for _, c := range cells {
			if !c.chosen(*onlyFlag) {
				continue
			}
			t.Run(c.String(), func(t *testing.T) {
				t.Parallel()
				for i := range *trialsFlag {
					t.Run(fmt.Sprint(i), func(t *testing.T) {
						if out, played := playTrial(t, c, rand.Uint64()); played {
							log.add(t, out)
						}
					})
				}
			})
		}
	})
	if *pageFlag != "" {
		log.writePage(t, *pageFlag)
	}
}

var (
	matrixDevices    = []string{"shm", "tcp"}
	matrixTransports = []string{"rc", "tmsrq"}
)

// possible lists the cells of a set that are possible.
func possible(set string) (cells []cell) {
	for i, f := range faults {
		for j, p := range phases {
			for k, device := range matrixDevices {
				for l, transport := range matrixTransports {
					c := cell{f, p, device, transport}
					if c.impossible() == "" && c.within(set, i, j, k, l) {
						cells = append(cells, c)
					}
				}
			}
		}
	}
	return cells
}

// within reports whether the cell at these places of the lists is in a set. A set is a Latin
// square: each fault and each phase meets each device and each transport.
func (c cell) within(set string, fault, phase, device, transport int) bool {
	square := fault + phase
	if c.fault.network {
		device = square % 2 // the only device
	}
	switch set {
	case "all":
		return true
	case "pairwise":
		return device == square%2 && transport == (square/2+fault)%2
	case "few":
		return c.fault.lasts < time.Minute && phase == 1+(3*fault+2)%(len(phases)-1) && device == square%2 && transport == (square/2+fault)%2
	}
	return false
}
