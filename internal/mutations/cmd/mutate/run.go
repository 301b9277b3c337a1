package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tagmatch/tagmatch/internal/mutations"
)

const (
	patience = 2 * time.Minute  // that tests may take: some wait a while for what a busy machine does late
	grace    = 10 * time.Second // in which a test that takes longer has to end itself
)

// runner builds and runs tests. Its work is shared out among goroutines.
type runner struct {
	ctx   context.Context
	root  string
	work  string // a directory of its own
	show  bool
	out   io.Writer
	start time.Time

	running sync.Mutex // held while tests run
	mu      sync.Mutex
	missed  []string // guarded by mu, as is out
}

// all runs what must pass without any bug, then what must fail with one.
func (r *runner) all(jobs []job, workers int) (caught int, err error) {
	var sound []job
	seen := map[string]bool{}
	for _, j := range jobs {
		for _, c := range j.commands {
			if seen[c.Text] {
				continue
			}
			seen[c.Text] = true
			i := slices.IndexFunc(sound, func(s job) bool { return target(s.commands[0]) == target(c) })
			if i < 0 {
				sound = append(sound, job{})
				i = len(sound) - 1
			}
			sound[i].commands = append(sound[i].commands, c)
		}
	}
	for _, part := range [][]job{sound, jobs} {
		if err := r.share(part, workers); err != nil {
			return 0, err
		}
		if err := context.Cause(r.ctx); err != nil {
			return 0, err
		}
		if part := r.missed; len(part) != 0 {
			return 0, fmt.Errorf("not as it must be: %s", strings.Join(part, ", "))
		}
	}
	return len(jobs), nil
}

// share has workers do jobs.
func (r *runner) share(jobs []job, workers int) error {
	next := make(chan int)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for i := range next {
				if errs[w] == nil && r.ctx.Err() == nil {
					errs[w] = r.do(&jobs[i])
				}
			}
		})
	}
	for i := range jobs {
		next <- i
	}
	close(next)
	all.Wait()
	return errors.Join(errs...)
}

// target tells what is built for a command.
func target(c mutations.Command) string {
	return strings.Join(slices.Concat(c.Build, []string{c.Dir}), " ")
}

// do builds the tests of j and runs its commands: with its bug they must fail, and without one
// pass.
func (r *runner) do(j *job) error {
	dir, err := os.MkdirTemp(r.work, "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the whole of r.work goes in the end
	overlay, err := r.overlay(dir, j.texts)
	if err != nil {
		return err
	}
	built := map[string]string{}
	for _, c := range j.commands {
		began := time.Now()
		binary, outcome, log := built[target(c)], "", ""
		if binary == "" {
			binary = filepath.Join(dir, strconv.Itoa(len(built))+".test")
			built[target(c)] = binary
			log, outcome = r.build(c, overlay, binary)
		}
		building := time.Since(began)
		r.running.Lock()
		began = time.Now()
		if outcome == "" {
			limit := patience
			if j.m != nil && j.m.Hang != 0 {
				limit = j.m.Hang
			}
			log, outcome = r.test(c, binary, limit)
		}
		r.running.Unlock()
		if r.ctx.Err() != nil {
			return nil
		}
		r.report(j, c, outcome, log, building, time.Since(began))
	}
	return nil
}

// overlay writes texts, and what tells the go command to read them instead of the files of the
// tree.
func (r *runner) overlay(dir string, texts map[string]string) (string, error) {
	replace := map[string]string{}
	for file, text := range texts {
		path := filepath.Join(dir, strconv.Itoa(len(replace))+filepath.Ext(file))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(r.root, file)] = path
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, list, 0o600)
}

// build builds the test of c; the outcome is empty where that is well. Tests that run meanwhile,
// some of which need two processors at the same time, have precedence.
func (r *runner) build(c mutations.Command, overlay, binary string) (log, outcome string) {
	args := slices.Concat([]string{"-n", "10", "go", "test", "-c", "-overlay", overlay, "-ldflags=-w", "-o", binary}, c.Build, []string{"./" + c.Dir})
	cmd := exec.CommandContext(r.ctx, "nice", args...)
	cmd.Dir = r.root
	if !slices.Contains(c.Build, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // links faster
	}
	text, err := cmd.CombinedOutput()
	if err != nil {
		return string(text) + err.Error(), "does not build"
	}
	return "", ""
}

// timedOut is what the package testing prints at the end of -test.timeout.
var timedOut = regexp.MustCompile(`(?m)^panic: test timed out`)

// failure is what a test that failed has printed: the last is of the fake device of package
// progress, which exits.
var failure = regexp.MustCompile(`(?m)^( *--- FAIL: |panic: |fatal error: |FAIL: )`)

// test runs a built test as the go command does, with all its cases, up to the first failure:
// others may wait as long.
func (r *runner) test(c mutations.Command, binary string, limit time.Duration) (log, outcome string) {
	ctx, cancel := context.WithTimeout(r.ctx, limit+grace)
	defer cancel()
	args := append([]string{"-test.paniconexit0", "-test.failfast", "-test.timeout=" + limit.String()}, c.Args...)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = filepath.Join(r.root, c.Dir)
	cmd.Env = append(os.Environ(), "TAGMATCH_TEST_LEVEL=ci")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // what a process that it has left behind still holds open
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what it has left behind
	}
	log = text.String()
	switch {
	case err == nil && strings.Contains(log, "no tests to run"):
		return log, "no test of that name"
	case err == nil:
		return log, "passes"
	case ctx.Err() != nil || timedOut.MatchString(log):
		return log, "hangs"
	case failure.MatchString(log):
		return log, "fails"
	}
	return log + err.Error(), "does not run"
}

// report says how a command went.
func (r *runner) report(j *job, c mutations.Command, outcome, log string, building, running time.Duration) {
	verdict, text := "passes", c.Text
	good := outcome == "passes"
	if j.m != nil {
		verdict, text = "caught", j.m.Name+" by "+c.Text
		good = outcome == "fails" || outcome == "hangs" && j.m.Hang != 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !good {
		verdict, text = "WRONG", text+": "+outcome
		if j.m != nil {
			verdict = "MISSED"
			if !slices.Contains(r.missed, j.m.Name) {
				r.missed = append(r.missed, j.m.Name)
			}
		} else {
			r.missed = append(r.missed, c.Text)
		}
	}
	if r.show || !good && outcome != "passes" {
		fmt.Fprintln(r.out, log)
	}
	fmt.Fprintf(r.out, "%-6s %5.1fs to build %5.1fs to run  %s\n", verdict, building.Seconds(), running.Seconds(), text)
}
