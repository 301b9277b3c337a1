package jobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/launch"
	"github.com/tagmatch/tagmatch/p2p"
)

func init() {
	roles["left"] = leftRole
	roles["hello"] = helloRole
}

// Ways for rank 1 to leave leftRole.
const (
	byKill = iota
	byExit
	byClose
)

// leftRole: rank 1 leaves while rank 0 waits for it, which fails with the error.
func leftRole(ctx context.Context, w *p2p.World) error {
	signal.Ignore(syscall.SIGTERM) // rank 0's output is needed, however late
	if _, err := exchange(ctx, w, 1, make([]uint64, w.Size())); err != nil {
		return err
	}
	if w.Rank() == 0 {
		_, err := w.Comm().Recv(ctx, 1, 5, nil)
		return err
	}
	switch number(argVar) {
	case byKill:
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case byExit:
		os.Exit(0)
	}
	return w.Close()
}

// helloRole prints the size of the world.
func helloRole(_ context.Context, w *p2p.World) error {
	fmt.Printf("rank %d of %d\n", w.Rank(), w.Size())
	return nil
}

// TestWords: the texts that the users of a rank and of the launcher read when another rank has
// gone.
func TestWords(t *testing.T) {
	for arg, want := range []struct{ rank, launcher string }{
		byKill:  {"its process has ended or was killed", "tagmatch: rank 1 was killed by a signal: killed\n"},
		byExit:  {"its process has ended or was killed", "tagmatch: rank 1 ended with code 0, but without Shutdown; rank 0 exited with code 1\n"},
		byClose: {"it has closed its World while this rank still counted on it", "tagmatch: rank 1 left the job by Close, without Shutdown; rank 0 exited with code 1\n"},
	} {
		eachDevice(t, func(t *testing.T, device string) {
			for _, env := range [][]string{nil, tmsrqEnv} {
				r := job{n: 2, role: "left", device: device, arg: arg, env: env}.run(t)
				require.NotZero(t, r.code)
				require.Contains(t, r.err, "[0] left: p2p: recv from 1, tag 0x5: rank 1 lost: "+want.rank+"\n", "%s%s", r.out, r.err)
				require.Contains(t, r.err, want.launcher, "%s%s", r.out, r.err)
			}
		})
	}
}

// TestNeverJoins: one rank of four sleeps instead of joining. The others all name it when the time
// to join is over.
func TestNeverJoins(t *testing.T) {
	t.Parallel()
	script := `[ $RANK = 2 ] && exec sleep 60; exec "$0"`
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out, stderr bytes.Buffer
	code, err := launch.Run(ctx, launch.Options{N: 4, Command: []string{"sh", "-c", script, os.Args[0]}, Stdout: &out, Stderr: &stderr,
		Env: append(os.Environ(), roleVar+"=hello", "TAGMATCH_JOIN_TIMEOUT=2s")})
	require.NoError(t, err)
	r := result{code, out.String(), stderr.String()}
	require.NotZero(t, r.code)
	require.Equal(t, 3, strings.Count(r.err, "still missing: rank 2 of 4"), r.err)
	require.Contains(t, r.err, "the 2s of TAGMATCH_JOIN_TIMEOUT are over")
	require.Contains(t, r.err, "tagmatch: rank 2 did not join the job; rank ")
	require.Empty(t, r.out)
}

func TestMisspelledVariable(t *testing.T) {
	r := job{n: 2, role: "hello", env: []string{"TAGMATCH_TRANPORT=rc"}}.run(t)
	require.NotZero(t, r.code)
	require.Contains(t, r.err, "the environment has TAGMATCH_TRANPORT, which is no variable of this release: did you mean TAGMATCH_TRANSPORT?")
}

// foreignLaunchers start two copies of what follows them.
var foreignLaunchers = []struct{ rank, size, line string }{
	{"$PMI_RANK", "$PMI_SIZE", "mpiexec.hydra -n 2"},
	{"$PMI_ID", "2", "mpiexec.hydra -pmi-port -n 2"},
	{"$OMPI_COMM_WORLD_RANK", "$OMPI_COMM_WORLD_SIZE", "mpirun.openmpi --allow-run-as-root --oversubscribe -n 2"},
}

// TestForeignLaunchers starts programs by launchers with other protocols: they must fail instead of
// being worlds of one.
func TestForeignLaunchers(t *testing.T) {
	for _, l := range foreignLaunchers {
		words := strings.Fields(l.line)
		t.Run(strings.Join(words[:2], " "), func(t *testing.T) {
			if _, err := exec.LookPath(words[0]); err != nil {
				t.Skip("needs Debian's mpich and openmpi-bin: ", err)
			}
			out, err := foreign(t, words, nil, os.Args[0])
			require.Error(t, err, out)
			require.Contains(t, out, "hello: p2p: init: bootstrap: this process was started as ")
			require.Contains(t, out, "TAGMATCH_LAUNCHER=singleton insists on a job of one rank")
			require.NotContains(t, out, "rank 0 of 1")

			out, err = foreign(t, words, []string{"TAGMATCH_LAUNCHER=singleton"}, os.Args[0])
			require.NoError(t, err, out)
			require.Equal(t, 2, strings.Count(out, "rank 0 of 1\n"), out)

			one := strings.Fields(strings.Replace(l.line, "-n 2", "-n 1", 1))
			if l.size != "2" { // the size is not in the environment there
				out, err = foreign(t, one, nil, os.Args[0])
				require.NoError(t, err, out)
				require.Equal(t, 1, strings.Count(out, "rank 0 of 1\n"), out)
			}

			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			require.NoError(t, ln.Close())
			script := fmt.Sprintf(`RANK=%s WORLD_SIZE=%s MASTER_ADDR=127.0.0.1 MASTER_PORT=%s exec "$0"`, l.rank, l.size, port)
			out, err = foreign(t, words, nil, "sh", "-c", script, os.Args[0])
			require.NoError(t, err, out)
			require.Contains(t, out, "rank 0 of 2\n")
			require.Contains(t, out, "rank 1 of 2\n")
		})
	}
}

// foreign runs a command under a launcher, as ranks with the role hello.
func foreign(t *testing.T, launcher, env []string, command ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, launcher[0], append(append([]string{}, launcher[1:]...), command...)...)
	c.Env = append(os.Environ(), roleVar+"=hello")
	c.Env = append(c.Env, env...)
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	require.NoError(t, ctx.Err(), "%s", out)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		require.Positive(t, exit.ExitCode(), "%s", out)
	}
	return string(out), err
}
