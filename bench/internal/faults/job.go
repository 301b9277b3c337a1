package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/launch"
)

// job is one job under way. Its methods are called by one goroutine.
type job struct {
	opt    launch.Options
	cancel context.CancelFunc
	out    output
	ended  chan struct{} // closed when code and err are set
	code   int
	err    error
}

func newJob(opt launch.Options) *job {
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{opt: opt, cancel: cancel, ended: make(chan struct{})}
	j.out = output{ranks: map[int]ready{}, want: opt.N, ready: make(chan struct{})}
	j.opt.Stdout, j.opt.Stderr = &j.out, (*words)(&j.out)
	go j.run(ctx)
	return j
}

// ready waits until all ranks are ready.
func (j *job) ready() error {
	limit := time.NewTimer(joinLimit)
	defer limit.Stop()
	select {
	case <-j.out.ready:
		return nil
	case <-j.ended:
		return errEnded
	case <-limit.C:
		return fmt.Errorf("ranks are not ready after %v", joinLimit)
	}
}

// until waits for a time, which the job is to outlive.
func (j *job) until(t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-j.ended:
		return errEnded
	}
}

// await waits for the end of the job.
func (j *job) await(t time.Time) error {
	if err := j.until(t); err == nil {
		return fmt.Errorf("the survivors have not ended after %v", endLimit)
	}
	return nil
}

// stop stops a rank until then.
func (j *job) stop(rank int, t time.Time) error {
	if err := j.signal(rank, syscall.SIGSTOP); err != nil {
		return err
	}
	if err := j.until(t); err != nil {
		return err // the launcher has killed it
	}
	return j.signal(rank, syscall.SIGCONT)
}

// signal signals a rank, which is alive as long as the job has not ended before its time.
func (j *job) signal(rank int, sig syscall.Signal) error {
	if err := syscall.Kill(j.out.rank(rank).PID, sig); err != nil {
		return fmt.Errorf("signal %v to rank %d: %w", sig, rank, err)
	}
	return nil
}

// dump has what is left of the job, but for one rank, say where it stands, and end.
func (j *job) dump(dead int) {
	for rank := range j.opt.N {
		if p := j.out.rank(rank); rank != dead && p.PID != 0 && !j.over() {
			_ = syscall.Kill(p.PID, syscall.SIGQUIT) // it may have ended by itself
		}
	}
	_ = j.until(time.Now().Add(dumpLimit)) // then the launcher kills them
}

func (j *job) over() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// end ends the job, waits for that, and returns its code.
func (j *job) end() int {
	j.cancel()
	<-j.ended
	return j.code
}

// output is what the ranks of a job write.
type output struct {
	mu    sync.Mutex
	want  int           // ranks
	ready chan struct{} // closed when all are
	ranks map[int]ready
	over  []Survivor
	rest  bytes.Buffer // that is for people
}

// words is the same as standard error output.
type words output

func (w *words) Write(p []byte) (int, error) {
	o := (*output)(w)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.keep(p)
	return len(p), nil
}

// maxWords is how much of what ranks say is kept.
const maxWords = 256 << 10

func (o *output) keep(p []byte) {
	n := min(len(p), maxWords-o.rest.Len())
	o.rest.Write(p[:n])
}

// Write gets whole lines.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for text := range bytes.Lines(p) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			o.keep(text)
			continue
		}
		switch {
		case l.Ready != nil:
			o.ranks[l.Ready.Rank] = *l.Ready
			if len(o.ranks) == o.want {
				close(o.ready)
			}
		case l.Over != nil:
			o.over = append(o.over, *l.Over)
		}
	}
	return len(p), nil
}

func (o *output) rank(rank int) ready {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ranks[rank]
}

func (j *job) survivors() []Survivor {
	j.out.mu.Lock()
	defer j.out.mu.Unlock()
	return slices.Clone(j.out.over)
}

// said is what the ranks and the launcher have written for people.
func (j *job) said() string {
	j.out.mu.Lock()
	defer j.out.mu.Unlock()
	return j.out.rest.String()
}
