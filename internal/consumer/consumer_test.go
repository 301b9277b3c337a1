package consumer

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestConsumer builds and runs a program in a fresh module outside the tree, with the two commands
// that README gives, and checks that README shows this very program.
func TestConsumer(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	program, err := os.ReadFile("testdata/main.go.txt")
	require.NoError(t, err)
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), strings.TrimSpace(string(program)), "README.md must show testdata/main.go.txt")
	testlevel.SkipIfQuick(t)

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), program, 0o644))
	makeModule(t, root, dir)
	run(t, dir, "go", "build", "-o", "hello", ".")
	require.Equal(t, "rank 0 got \"hello from 0\" from 0\n", run(t, dir, "./hello"))
	require.Contains(t, run(t, root, "go", "run", "./cmd/tagmatch", "run", "-n", "2", "--", filepath.Join(dir, "hello")),
		`rank 1 got "hello from 0" from 0`)
}

// makeModule makes the program in dir a module that requires this tree.
func makeModule(t *testing.T, root, dir string) {
	t.Helper()
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o644))
	run(t, dir, "go", "mod", "init", "example.com/hello")
	run(t, dir, "go", "mod", "edit", "-require=github.com/tagmatch/tagmatch@v0.0.0", "-replace=github.com/tagmatch/tagmatch="+root)
	run(t, dir, "go", "mod", "tidy")
}

// run runs a command in dir without any launcher's variables and returns what it printed.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	require.NoError(t, cmd.Run(), "%s %s\n%s%s", name, strings.Join(args, " "), &out, &stderr)
	return out.String()
}
