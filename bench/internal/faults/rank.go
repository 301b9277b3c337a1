package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"github.com/tagmatch/tagmatch/bench/internal/benchkit"
)

// Survivor is what a rank has seen of the end of another one.
type Survivor struct {
	Rank int       `json:"rank"`
	Lost int       `json:"lost"`
	At   time.Time `json:"at"`   // when it knew
	Over time.Time `json:"over"` // when all that depended on that rank had ended
	benchkit.Soak

	// Set by Rank.Over.
	Resident    int64 `json:"resident"` // bytes
	Descriptors int   `json:"descriptors"`
}

// ready is what a rank says when it is one of the job.
type ready struct {
	Rank int `json:"rank"`
	PID  int `json:"pid"`
}

// line is one line of a rank's output.
type line struct {
	Ready *ready    `json:"ready,omitempty"`
	Over  *Survivor `json:"over,omitempty"`
}

// Rank is this process, which may be the one to die.
type Rank struct{ rank int }

// Join makes this process die as the driver has it.
func Join(rank int) *Rank {
	told := make(chan os.Signal, 2)
	signal.Notify(told, sigExit, sigPanic)
	go func() {
		if <-told == sigExit {
			os.Exit(0)
		}
		panic("this rank panics as it was told to")
	}()
	return &Rank{rank: rank}
}

// Ready tells the driver that this rank may die from now on.
func (r *Rank) Ready() error { return say(line{Ready: &ready{Rank: r.rank, PID: os.Getpid()}}) }

// Over tells the driver what this rank has seen. The World is open still.
func (r *Rank) Over(s Survivor) error {
	runtime.GC()
	now, err := self()
	if err != nil {
		return err
	}
	s.Rank, s.Resident, s.Descriptors = r.rank, now.resident, now.descriptors
	return say(line{Over: &s})
}

func say(l line) error {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = fmt.Printf("%s\n", text)
	}
	return err
}

// usage is what a process has.
type usage struct {
	resident    int64 // bytes
	descriptors int
}

// self is what this process has.
func self() (usage, error) {
	now, err := benchkit.Resident()
	if err != nil {
		return usage{}, err
	}
	list, err := os.ReadDir("/proc/self/fd")
	return usage{resident: now, descriptors: len(list)}, err
}
