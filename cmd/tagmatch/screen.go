package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/tagmatch/tagmatch/internal/inspect/top"
)

// screen is the terminal that a table is shown on.
type screen struct{ in, out *os.File }

// screenOf is false where the output, or the input that keys come from, is no terminal.
func screenOf(in *os.File, out io.Writer) (screen, bool) {
	o, ok := out.(*os.File)
	if !ok || in == nil || !term.IsTerminal(int(o.Fd())) || !term.IsTerminal(int(in.Fd())) {
		return screen{}, false
	}
	return screen{in, o}, true
}

// What terminals take, as ECMA-48 and xterm have it.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l" // one of its own, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	cursorHome  = "\x1b[H"
	endOfLine   = "\x1b[K" // is erased from the cursor on
	endOfScreen = "\x1b[J"
)

// titled is a table with the line above it.
type titled struct {
	title string
	table top.Table
}

// show shows tables until a key or a signal ends it, or the job has ended, which it says then. The
// terminal is left as it was.
func (s screen) show(ctx context.Context, look sampler, v top.View) (err error) {
	was, err := term.MakeRaw(int(s.in.Fd()))
	if err != nil {
		return fmt.Errorf("the terminal does not give single keys: %w", err)
	}
	if _, err := io.WriteString(s.out, enterScreen); err != nil {
		return errors.Join(err, term.Restore(int(s.in.Fd()), was))
	}
	ended, err := s.watch(ctx, look, v)
	_, werr := io.WriteString(s.out, leaveScreen)
	err = errors.Join(err, werr, term.Restore(int(s.in.Fd()), was))
	if err == nil && ended {
		_, err = fmt.Fprintln(s.out, "The job has ended.")
	}
	return err
}

// watch paints tables, and reports whether it was the job that has ended.
func (s screen) watch(ctx context.Context, look sampler, v top.View) (ended bool, err error) {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	var both sync.WaitGroup
	defer both.Wait()
	defer cancel()
	tables, keys := make(chan titled), make(chan string)
	both.Go(func() {
		defer close(keys)
		s.keys(ctx, keys)
	})
	both.Go(func() {
		defer close(tables)
		_ = watch(ctx, look, func(title string, now, before []top.Sample) error {
			return give(ctx, tables, titled{title, top.Of(now, before)})
		})
	})
	over, err := s.loop(tables, keys, v)
	return over && ctx.Err() == nil, err
}

// give sends a value to who still wants it.
func give[T any](ctx context.Context, to chan<- T, v T) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// loop paints until there are no more tables, which it reports, or a key ends it.
func (s screen) loop(tables <-chan titled, keys <-chan string, v top.View) (over bool, err error) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	var now titled
	for {
		select {
		case t, more := <-tables:
			if !more {
				return true, nil
			}
			now = t
		case typed, more := <-keys:
			if !more || !press(&v, typed, len(now.table.Rows)) {
				return false, nil
			}
		case <-resized:
		}
		if err := s.paint(&now, &v); err != nil {
			return false, err
		}
	}
}

// paint writes over what is there, so that nothing flickers.
func (s screen) paint(now *titled, v *top.View) (err error) {
	if v.Width, v.Height, err = term.GetSize(int(s.out.Fd())); err != nil {
		return err
	}
	v.Title = now.title
	v.Foot = fmt.Sprintf("sorted by %s; keys: < > another column, r reverse, q quit", top.Columns[v.SortedBy(len(now.table.Rows))].Name)
	lines := v.Lines(&now.table)
	_, err = io.WriteString(s.out, cursorHome+strings.Join(lines, endOfLine+"\r\n")+endOfLine+endOfScreen)
	return err
}

// press does what was typed, and reports whether to go on.
func press(v *top.View, typed string, ranks int) (more bool) {
	const interrupt, endOfFile = "\x03", "\x04"
	typed = strings.NewReplacer("\x1b[D", "<", "\x1bOD", "<", "\x1b[C", ">", "\x1bOC", ">").Replace(typed)
	for _, key := range typed {
		switch string(key) {
		case "q", "Q", interrupt, endOfFile:
			return false
		case "r", "R":
			v.Sort, v.Reverse = v.SortedBy(ranks), !v.Reverse
		case "<", ",":
			v.Sort, v.Reverse = max(0, v.SortedBy(ranks)-1), false
		case ">", ".":
			v.Sort, v.Reverse = min(len(top.Columns)-1, v.SortedBy(ranks)+1), false
		}
	}
	return true
}

// keyPause is how long who reads keys may go on after the end of the context.
const keyPause = 50 // ms

// keys reads what is typed until the terminal or ctx has ended.
func (s screen) keys(ctx context.Context, keys chan<- string) {
	buf := make([]byte, 64)
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(s.in.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, keyPause)
		if n == 0 || err == unix.EINTR {
			continue
		}
		n, err = s.in.Read(buf)
		if err != nil || give(ctx, keys, string(buf[:n])) != nil {
			return
		}
	}
}
