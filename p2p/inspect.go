package p2p

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/tagmatch/tagmatch/internal/inspect"
	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/inspect/stacks"
	"github.com/tagmatch/tagmatch/internal/settings"
	"github.com/tagmatch/tagmatch/internal/trace"
)

// inside is the launcher of Bootstraps whose ranks are all of one process.
const inside = "local"

// openDoor opens the door by which `tagmatch dump` looks into this rank, where the system has such.
// Ranks that are all of one process, those of tests, have none: who debugs that process sees them.
func (w *World) openDoor() {
	if w.cfg.Inspect == settings.InspectOff || w.parts.boot.Info().Launcher == inside {
		return
	}
	me := w.self()
	name := doors.Name{UID: os.Geteuid(), Job: me.Job, Rank: w.rank, PID: me.PID}
	w.tracing.w = w
	var err error
	w.door, err = doors.Open(name, func(request string) []any {
		if request == inspect.RequestState {
			return []any{w.inspect(me)}
		}
		q, ok := trace.ParseRequest(request)
		if !ok {
			return doors.Refuse(request)
		}
		a, err := w.tracing.serve(q, &me)
		if err != nil {
			return doors.Fail(err)
		}
		return []any{a}
	})
	if err != nil && w.cfg.Logger != nil {
		w.cfg.Logger.Info("this rank cannot be looked into from outside", "rank", w.rank, "err", err)
	}
}

// self is what never changes of this rank's state.
func (w *World) self() inspect.State {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return inspect.State{Version: inspect.Version, Job: w.jobName(), Rank: w.rank, Size: w.size, Host: host, PID: os.Getpid(),
		Program: filepath.Base(program), Started: time.Now(), EagerLimit: w.cfg.EagerLimit}
}

// jobName tells this run of this job from others, to everybody on the host: of the secret it says
// nothing.
func (w *World) jobName() string {
	h := hmac.New(sha256.New, w.secret())
	h.Write([]byte("tagmatch: name of job " + w.parts.boot.Info().JobID))
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// largestWired is up to how many ranks all are asked for their wires, which the engine does under
// its lock.
const largestWired = 1 << 10

// inspect completes what is known of this rank. The goroutines are read first, and what counts as
// moved last: where two looks have the same count the second has read the goroutines between.
func (w *World) inspect(s inspect.State) inspect.State {
	var goroutines, meetings bool
	s.Calls, s.Outside, goroutines = stacks.Parse(stacks.Take())
	s.Phase = inspect.PhaseRunning
	if w.leaving.Load() {
		s.Phase = inspect.PhaseShutdown
	}
	s.Meetings, meetings = w.meetingsNow()
	w.addFence(&s)
	var wires []string
	if w.size <= largestWired {
		wires = w.eng.Wires()
	}
	s.Device, s.Transport = w.deviceName(wires), w.transport()
	look := w.eng.Look()
	s.Partial = !goroutines || !meetings || look.Partial
	addLook(&s, look)
	return s
}

// addFence counts a goroutine that waits for the other ranks in Shutdown.
func (w *World) addFence(s *inspect.State) {
	ctx := w.fence.Load()
	if ctx == nil || (*ctx).Err() != nil {
		return
	}
	s.Waiting++
	if _, timed := (*ctx).Deadline(); timed {
		s.Timed++
	}
}
