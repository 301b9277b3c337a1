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

// Run runs the command in a process of its own.
func Run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// Job runs the command as n ranks of a launcher.
func Job(t *testing.T, n int, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return JobOf(t, launch.Options{N: n}, args...)
}

// JobOf is Job with options of the launcher.
func JobOf(t *testing.T, opt launch.Options, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	var out, errs bytes.Buffer
	opt.Command, opt.Env = slices.Concat([]string{exe}, args), append(os.Environ(), asCommand+"=1")
	opt.NoPrefix, opt.Stdout, opt.Stderr = true, &out, &errs
	code, err = launch.Run(context.Background(), opt)
	require.NoError(t, err)
	return code, out.String(), errs.String()
}
