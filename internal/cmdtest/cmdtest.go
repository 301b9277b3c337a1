package cmdtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/launch"
)

// asCommand makes a test binary be the command.
const asCommand = "TAGMATCH_TEST_AS_COMMAND"

// Main is the body of TestMain; command is the main function under test.
func Main(m *testing.M, command func()) {
	if os.Getenv(asCommand) != "" {
		command()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Program is the path of a command.
type Program string

// self is the test binary, which is the command where Main sees asCommand.
func self(t *testing.T) Program {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	return Program(exe)
}

// Run runs the command in a process of its own.
func Run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return self(t).Run(args...)
}

// Job runs the command as n ranks of a launcher.
func Job(t *testing.T, n int, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return self(t).Job(t, launch.Options{N: n}, args...)
}

// Run runs the program in a process of its own.
func (p Program) Run(args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(string(p), args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// Job runs the program as ranks of a launcher.
func (p Program) Job(t *testing.T, opt launch.Options, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	opt.Command, opt.Env = slices.Concat([]string{string(p)}, args), append(os.Environ(), asCommand+"=1")
	opt.NoPrefix, opt.Stdout, opt.Stderr = true, &out, &errs
	code, err := launch.Run(context.Background(), opt)
	require.NoError(t, err)
	return code, out.String(), errs.String()
}
