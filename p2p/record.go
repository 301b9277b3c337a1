package p2p

import (
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/tagmatch/tagmatch/internal/settings"
	"github.com/tagmatch/tagmatch/internal/trace"
	"github.com/tagmatch/tagmatch/internal/trace/tracefile"
)

// record begins to record into a file what this rank does, where TAGMATCH_TRACE says so. A Shutdown
// without an error removes the file; all other ends of the rank leave it.
func (w *World) record() {
	dir, on, _ := settings.ParseTrace(w.cfg.Trace) // which is valid
	if !on || w.parts.boot.Info().Launcher == inside {
		return
	}
	if err := w.recordIn(dir); err != nil {
		fmt.Fprintf(os.Stderr, "tagmatch: rank %d does without TAGMATCH_TRACE: %v\n", w.rank, err)
	}
}

func (w *World) recordIn(dir string) error {
	me := self(w.jobName(), w.rank, w.size, &w.cfg)
	file, err := tracefile.Create(dir, me.Job, w.rank)
	if err != nil {
		return err
	}
	w.records = file
	start, err := w.eng.StartTrace(file.Ring)
	if err == nil {
		a := trace.Answer{Version: trace.Version, Job: me.Job, Rank: me.Rank, Size: me.Size, Host: me.Host, PID: me.PID, Program: me.Program}
		stamp(&a, start)
		err = file.Head(&a)
	}
	if err != nil {
		err = errors.Join(err, w.endRecord(true))
	}
	return err
}

// stamp says when a recording began, by both clocks.
func stamp(a *trace.Answer, start time.Time) {
	mono, wall := bothClocks(monotonic)
	since := wall.Sub(start).Nanoseconds()
	a.Wall = wall.UnixNano() - since
	if mono != 0 { // else there is no clock that processes share
		a.Mono = mono - since
	}
}

// bothClocks looks at both clocks at one time. Where something came between the looks, which would
// move all of a rank's records, it looks again.
func bothClocks(monotonic func() int64) (mono int64, wall time.Time) {
	const tries, enough = 20, int64(2 * time.Microsecond)
	for took, i := int64(math.MaxInt64), 0; took > enough && i < tries; i++ {
		before := monotonic()
		now := time.Now()
		if between := monotonic() - before; between < took {
			took, mono, wall = between, before+between/2, now
		}
	}
	return mono, wall
}

// endRecord ends what record has begun; well says that nobody will look for the file.
func (w *World) endRecord(well bool) error {
	if w.records == nil {
		return nil
	}
	w.eng.StopTrace()
	file := w.records
	w.records = nil
	return file.Close(!well)
}
