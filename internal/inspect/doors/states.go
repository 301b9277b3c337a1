package doors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

const (
	// limit is how long a rank has to answer.
	limit = time.Second

	mostAtOnce = 256 // connections
)

// States asks ranks for their states, all at once. One that does not answer within a second has a
// state that says why, by what the kernel knows of its process.
func States(ctx context.Context, names []Name) []inspect.State { return states.here(ctx, names) }

// Metrics is States of counters.
func Metrics(ctx context.Context, names []Name) []inspect.Metrics { return metrics.here(ctx, names) }

// kind is one of the answers that ranks give.
type kind[T any] struct {
	request string
	decode  func(line []byte, n Name) (T, error)
	silent  func(n Name, host, why string) T // stands for the answer of a rank that gives none
	origin  func(*T) origin
}

// origin is what all answers have.
type origin struct {
	job        string
	rank, size int
	silent     string
}

var states = kind[inspect.State]{inspect.RequestState, decode,
	func(n Name, host, why string) inspect.State {
		return inspect.State{Version: inspect.Version, Job: n.Job, Rank: n.Rank, Host: host, PID: n.PID, At: time.Now(), Silent: why}
	},
	func(s *inspect.State) origin { return origin{s.Job, s.Rank, s.Size, s.Silent} },
}

var metrics = kind[inspect.Metrics]{inspect.RequestMetrics, decodeMetrics,
	func(n Name, host, why string) inspect.Metrics {
		return inspect.Metrics{Version: inspect.Version, Job: n.Job, Rank: n.Rank, Host: host, PID: n.PID, At: time.Now(), Silent: why}
	},
	func(m *inspect.Metrics) origin { return origin{m.Job, m.Rank, m.Size, m.Silent} },
}

// here asks the ranks that have these doors.
func (k *kind[T]) here(ctx context.Context, names []Name) []T {
	return each(names, func(n Name) T {
		var answer T
		lines, pid, err := askInTime(ctx, n, k.request)
		if err == nil {
			answer, err = k.decode(lines[0], n)
		}
		if err != nil {
			return k.silent(n, host(), why(err, pid))
		}
		return answer
	})
}

// each asks ranks, mostAtOnce at a time.
func each[T any](names []Name, ask func(Name) T) []T {
	list := make([]T, len(names))
	free := make(chan struct{}, mostAtOnce)
	var asked sync.WaitGroup
	for i, n := range names {
		free <- struct{}{}
		asked.Go(func() {
			list[i] = ask(n)
			<-free
		})
	}
	asked.Wait()
	return list
}

// askInTime is Ask of a rank that has so long to answer. pid is that of its name where it is not
// known otherwise.
func askInTime(ctx context.Context, n Name, request string) (lines [][]byte, pid int, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lines, pid, err = Ask(ctx, n, request)
	return lines, cmp.Or(pid, n.PID), err
}

// host is empty where the name is not known: the rank is here all the same.
func host() string {
	name, _ := os.Hostname()
	return name
}

// Look is states as one look at a job: those that say why a rank has not answered become entries of
// Absent.
func Look(states []inspect.State) (l inspect.Look) {
	for _, s := range states {
		if s.Silent == "" {
			l.States = append(l.States, s)
			continue
		}
		why, known := whys[s.Silent]
		if !known {
			why = inspect.WhySilent
		}
		l.Absent = append(l.Absent, inspect.Absent{Rank: s.Rank, Host: s.Host, PID: s.PID, Why: why})
	}
	return l
}

var whys = map[string]string{Gone: inspect.WhyGone, Stopped: inspect.WhyStopped, Blocked: inspect.WhyDisk}

// decode reads a state, which is that of the door's rank.
func decode(line []byte, n Name) (s inspect.State, err error) {
	if err := checkVersion(line); err != nil {
		return s, err
	}
	if err := json.Unmarshal(line, &s); err != nil {
		return s, fmt.Errorf("its answer is no state: %w", err)
	}
	return s, checkRank(n, s.Job, s.Rank, s.Size)
}

// decodeMetrics is decode of counters.
func decodeMetrics(line []byte, n Name) (m inspect.Metrics, err error) {
	if err := checkVersion(line); err != nil {
		return m, err
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return m, fmt.Errorf("its answer is no metrics: %w", err)
	}
	return m, checkRank(n, m.Job, m.Rank, m.Size)
}

func checkVersion(line []byte) error {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("its answer is no JSON: %w", err)
	}
	if head.Version != inspect.Version {
		return fmt.Errorf("its answer has version %d, and this tagmatch knows %d: use that of the same release as the program", head.Version, inspect.Version)
	}
	return nil
}

func checkRank(n Name, job string, rank, size int) error {
	if job != n.Job || rank != n.Rank || size <= rank {
		return fmt.Errorf("its answer is of rank %d of %d of job %s", rank, size, job)
	}
	return nil
}

// why says why a rank has not answered: where its process is well, what went wrong.
func why(err error, pid int) string {
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.EAGAIN)
	if what := Process(pid); late || what != Busy {
		return what
	}
	if errors.Is(err, syscall.ECONNREFUSED) { // the door is closed, and the process goes on
		return Left
	}
	return err.Error()
}
