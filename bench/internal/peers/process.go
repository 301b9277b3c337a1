package peers

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// grace is how long a program may still run that has printed its result: MPICH 4.0 over TCP hangs
// in MPI_Finalize now and then.
const grace = 2 * time.Second

// resultOf runs a command that prints a line, its result, and returns what it printed: the line
// alone if it had to be ended then, of which its launcher may have more to say.
func resultOf(ctx context.Context, env, args []string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	// Told by SIGTERM, launchers end their ranks.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	printed := &lineBuffer{}
	var stderr bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = env, printed, &stderr
	printed.whole = func() { time.AfterFunc(grace, cancel) }
	err := cmd.Run()
	switch {
	case err == nil:
		return printed.data, nil
	case printed.whole != nil || ctx.Err() == nil:
		return slices.Concat(stderr.Bytes(), printed.data), err
	}
	return printed.data[:bytes.IndexByte(printed.data, '\n')+1], nil
}

// lineBuffer calls whole, once, when a line is complete.
type lineBuffer struct {
	data  []byte
	whole func()
}

func (b *lineBuffer) Write(p []byte) (int, error) {
	if b.whole != nil && bytes.IndexByte(p, '\n') >= 0 {
		b.whole()
		b.whole = nil
	}
	b.data = append(b.data, p...)
	return len(p), nil
}
