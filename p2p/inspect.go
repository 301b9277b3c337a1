package p2p

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
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
// The error is why there is none.
func (w *World) openDoor() (name doors.Name, err error) {
	if w.cfg.Inspect == settings.InspectOff || w.parts.boot.Info().Launcher == inside {
		return name, errNoDoor
	}
	me := self(w.jobName(), w.rank, w.size, &w.cfg)
	name = doors.Name{UID: os.Geteuid(), Job: me.Job, Rank: w.rank, PID: me.PID}
	w.tracing.w = w
	answer := func(request string) []any {
		switch request {
		case inspect.RequestState:
			return []any{w.inspect(me)}
		case inspect.RequestMetrics:
			return []any{w.metrics(me)}
		}
		if q, ok := trace.ParseRequest(request); ok {
			return []any{w.traced(q, &me)}
		}
		return doors.Refuse(request)
	}
	w.parts.boot.Answer(replier(name, answer))
	w.door, err = doors.Open(name, func(request string) []any {
		if rest, ok := strings.CutPrefix(request, inspect.RequestJob+" "); ok {
			return []any{w.relayed(rest)}
		}
		return answer(request)
	})
	if err != nil && w.cfg.Logger != nil {
		w.cfg.Logger.Info("this rank cannot be looked into from outside", "rank", w.rank, "err", err)
	}
	return name, err
}

// self is what never changes of a rank's state.
func self(job string, rank, size int, cfg *settings.Config) inspect.State {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	return inspect.State{Version: inspect.Version, Job: job, Rank: rank, Size: size, Host: hostName(), PID: os.Getpid(),
		Program: filepath.Base(program), Started: time.Now(), EagerLimit: cfg.EagerLimit}
}

// traced answers a request about a recording.
func (w *World) traced(q trace.Request, me *inspect.State) any {
	if !w.started.Load() {
		return doors.Refused(errInInit)
	}
	a, err := w.tracing.serve(q, me)
	if err != nil {
		return doors.Refused(err)
	}
	return a
}

// metrics is the counters, for who looks from outside.
func (w *World) metrics(me inspect.State) any {
	if !w.started.Load() {
		return doors.Refused(errInInit)
	}
	values, err := json.Marshal(w.Metrics())
	if err != nil {
		return doors.Refused(err)
	}
	return inspect.Metrics{Version: inspect.Version, Job: me.Job, Rank: me.Rank, Size: me.Size, Host: me.Host, PID: me.PID,
		Program: me.Program, At: time.Now(), Started: me.Started, Values: values, CPU: cpuTime(), UnexpectedLimit: w.cfg.UnexpectedLimit}
}

var errInInit = errors.New("the rank is in Init")

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
	if !w.started.Load() {
		return joining(s, w.waits)
	}
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
