package benchtest

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
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
