package doors

import (
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
func States(ctx context.Context, names []Name) []inspect.State {
	list := make([]inspect.State, len(names))
	free := make(chan struct{}, mostAtOnce)
	var asked sync.WaitGroup
	for i, n := range names {
		free <- struct{}{}
		asked.Go(func() {
			list[i] = state(ctx, n)
			<-free
		})
	}
	asked.Wait()
	return list
}

func state(ctx context.Context, n Name) inspect.State {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lines, pid, err := Ask(ctx, n, inspect.RequestState)
	if err == nil {
		var s inspect.State
		if s, err = decode(lines[0], n); err == nil {
			return s
		}
	}
	if pid == 0 {
		pid = n.PID
	}
	host, _ := os.Hostname() // where it is not known the rank is here all the same
	return inspect.State{Version: inspect.Version, Job: n.Job, Rank: n.Rank, Host: host, PID: n.PID, At: time.Now(), Silent: why(err, pid)}
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
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return s, fmt.Errorf("its answer is no JSON: %w", err)
	}
	if head.Version != inspect.Version {
		return s, fmt.Errorf("its answer has version %d, and this tagmatch knows %d: use that of the same release as the program", head.Version, inspect.Version)
	}
	if err := json.Unmarshal(line, &s); err != nil {
		return s, fmt.Errorf("its answer is no state: %w", err)
	}
	if s.Job != n.Job || s.Rank != n.Rank || s.Size <= s.Rank {
		return s, fmt.Errorf("its answer is of rank %d of %d of job %s", s.Rank, s.Size, s.Job)
	}
	return s, nil
}

// why says why a rank has not answered: where its process is well, what went wrong.
func why(err error, pid int) string {
	late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.EAGAIN)
	if what := Process(pid); late || what != Busy {
		return what
	}
	if errors.Is(err, syscall.ECONNREFUSED) { // the door is closed, and the process goes on
		return "it has closed its World"
	}
	return err.Error()
}
