package pmi

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/bootstrap/internal/space"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestMain(m *testing.M) {
	if ranktest.Process(openHere) {
		return
	}
	goleak.VerifyTestMain(m)
}

func openHere(ctx context.Context) (string, space.Space, error) {
	p, err := Find(os.Getenv)
	if err != nil || p == nil {
		return "", nil, fmt.Errorf("no place: %w", err)
	}
	s, err := p.Open(ctx)
	return p.Launcher, s, err
}

// TestBroadcast hands values of all kinds of size to ranks of all kinds of process manager.
func TestBroadcast(t *testing.T) {
	for _, tt := range []struct {
		name        string
		jobID       string // set: PMI-2
		strict, odd bool
	}{
		{"Hydra", "", false, false},
		{"another PMI-1", "", false, true},
		{"Slurm's PMI-1", "", true, false},
		{"Slurm", "3.0", false, true},
		{"Hydra's PMI-2", "3.0", false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, size := range []int{1, 300, 383, 384, 385, 1023, space.MaxValue} {
				m := newManager(3)
				m.strict, m.odd = tt.strict, tt.odd
				value := make([]byte, size)
				rand.Read(value)
				var wg sync.WaitGroup
				got := make([][]byte, 3)
				for r := range got {
					c := open(t, m.start(t, r, tt.jobID))
					id := c.Identity()
					require.Equal(t, space.Identity{Rank: r, Size: 3, LocalRank: r, LocalSize: 3, JobID: id.JobID}, id)
					require.NotEmpty(t, id.JobID)
					wg.Go(func() {
						mine := []byte("ignored")
						if r == 0 {
							mine = value
						}
						var err error
						ctx, cancel := context.WithTimeout(context.Background(), testlevel.Patience(10*time.Second))
						defer cancel()
						got[r], err = c.Broadcast(ctx, mine)
						assert.NoError(t, errors.Join(err, c.Close(), c.Close()))
					})
				}
				wg.Wait()
				require.Equal(t, 3, m.ended)
				for r := range got {
					require.True(t, bytes.Equal(value, got[r]), "rank %d of %d bytes", r, size)
				}
			}
		})
	}
}

func TestBroadcastSize(t *testing.T) {
	for _, n := range []int{0, space.MaxValue + 1} {
		c := open(t, newManager(1).start(t, 0, ""))
		_, err := c.Broadcast(context.Background(), make([]byte, n))
		require.ErrorContains(t, err, "1 to 4096 can be handed")
		require.NoError(t, c.Close())
	}
}

// TestPort is the model in which a process connects.
func TestPort(t *testing.T) {
	m := newManager(2)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	var served sync.WaitGroup
	defer served.Wait()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			served.Go(func() { m.serve(conn, -1); conn.Close() })
		}
	}()
	var wg sync.WaitGroup
	for _, id := range []string{"0", "1"} {
		wg.Go(func() {
			env := map[string]string{"PMI_PORT": ln.Addr().String(), "PMI_ID": id, "MPI_LOCALRANKID": id, "MPI_LOCALNRANKS": "2"}
			p, err := Find(func(s string) string { return env[s] })
			if !assert.NoError(t, err) {
				return
			}
			assert.Equal(t, -1, p.Size)
			assert.Equal(t, []string{"PMI_PORT", "PMI_ID"}, p.Variables)
			c, err := p.Open(context.Background())
			if !assert.NoError(t, err) {
				return
			}
			assert.Equal(t, 2, c.Identity().Size)
			assert.Equal(t, 2, c.Identity().LocalSize)
			v, err := c.Broadcast(context.Background(), []byte("from 0"))
			assert.NoError(t, err)
			assert.Equal(t, "from 0", string(v))
			assert.NoError(t, c.Close())
		})
	}
	wg.Wait()
}

func TestFind(t *testing.T) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	defer func() { _, _ = syscall.Close(fds[0]), syscall.Close(fds[1]) }()
	fd := itoa(fds[0])
	file, err := os.Open("pmi.go")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	for _, tt := range []struct {
		name string
		env  map[string]string
		want string // the launcher; "": none
		err  string
	}{
		{"nothing", nil, "", ""},
		{"a rank", map[string]string{"PMI_FD": fd, "PMI_RANK": "1", "PMI_SIZE": "4"}, "mpiexec (PMI-1)", ""},
		{"Slurm", map[string]string{"PMI_FD": fd, "PMI_RANK": "1", "PMI_SIZE": "4", "PMI_JOBID": "3.0"}, "srun (Slurm, PMI-2)", ""},
		{"port", map[string]string{"PMI_PORT": "vm:1", "PMI_ID": "1"}, "mpiexec (PMI-1)", ""},
		{"port without id", map[string]string{"PMI_PORT": "vm:1"}, "", ""},
		{"closed descriptor", map[string]string{"PMI_FD": "999", "PMI_RANK": "1", "PMI_SIZE": "4"}, "", ""},
		{"a file", map[string]string{"PMI_FD": itoa(int(file.Fd())), "PMI_RANK": "1", "PMI_SIZE": "4"}, "", ""},
		{"no number", map[string]string{"PMI_FD": "six"}, "", ""},
		{"no rank", map[string]string{"PMI_FD": fd, "PMI_SIZE": "4"}, "", `PMI_RANK is "" beside PMI_FD and PMI_SIZE 4`},
		{"rank too large", map[string]string{"PMI_FD": fd, "PMI_SIZE": "4", "PMI_RANK": "4"}, "", `PMI_RANK is "4"`},
		{"no size", map[string]string{"PMI_FD": fd, "PMI_RANK": "0"}, "", `PMI_SIZE is ""`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := Find(func(s string) string { return tt.env[s] })
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err)
				return
			}
			require.NoError(t, err)
			if tt.want == "" {
				require.Nil(t, p)
				return
			}
			require.Equal(t, tt.want, p.Launcher)
		})
	}
}

// TestCanceled ends a wait that never ends, after which the client refuses to go on.
func TestCanceled(t *testing.T) {
	for _, jobID := range []string{"", "3.0"} {
		c := open(t, newManager(2).start(t, 0, jobID))
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		_, err := c.Broadcast(ctx, []byte("x"))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = c.Broadcast(context.Background(), []byte("x"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, c.Close())
		require.NoError(t, c.ch.close(), "it is left open: Hydra would kill the job")
	}
}

// TestAbortInBarrier gets through though a request waits.
func TestAbortInBarrier(t *testing.T) {
	for _, jobID := range []string{"", "3.0"} {
		m := newManager(2)
		c0, c1 := open(t, m.start(t, 0, jobID)), open(t, m.start(t, 1, jobID))
		done := make(chan error)
		go func() {
			_, err := c0.Broadcast(context.Background(), []byte("x"))
			done <- err
		}()
		c1.Abort(42, "it = broken; \\ badly\n")
		m.mu.Lock()
		for len(m.aborted) == 0 {
			m.cond.Wait()
		}
		said := m.aborted[0]
		m.mu.Unlock()
		require.Contains(t, said, "42")
		require.Contains(t, said, "broken")
		require.NotContains(t, said, `\`)
		require.NoError(t, c0.ch.close())
		require.Error(t, <-done)
		require.NoError(t, c0.Close())
		require.NoError(t, c1.Close())
	}
}

// TestBadServers: whatever a process manager does, there is an error in the end.
func TestBadServers(t *testing.T) {
	const init1 = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
	for _, tt := range []struct{ name, jobID, says, err string }{
		{"closes at once", "", "", "has closed the connection"},
		{"refuses the version", "", "cmd=response_to_init rc=-1 msg=version\n", "refused a request: response_to_init, rc=-1 version"},
		{"another answer", "", "cmd=maxes\n", `answered "maxes" where "response_to_init" was due`},
		{"half an answer", "", init1 + "cmd=max", "has closed the connection"},
		{"a long line", "", strings.Repeat("x", maxReply+1), "a line of more than"},
		{"short values", "", init1 + "cmd=maxes vallen_max=64\n", `takes values of "64" bytes`},
		{"no length", "3.0", "cmd=response_to_init rc=0\nnonum cmd=", `the length "nonum "`},
		{"a huge length", "3.0", "cmd=response_to_init rc=0\n999999", `the length "999999"`},
		{"no rank", "3.0", "cmd=response_to_init rc=0\n    30cmd=fullinit-response;size=2;;;", `rank is ""`},
		{"ends in a message", "3.0", "cmd=response_to_init rc=0\n    30cmd=fullinit", "has closed the connection"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			require.NoError(t, err)
			server := os.NewFile(uintptr(fds[1]), "server")
			_, err = io.WriteString(server, tt.says)
			require.NoError(t, err)
			require.NoError(t, syscall.Shutdown(fds[1], syscall.SHUT_WR))
			env := map[string]string{"PMI_FD": itoa(fds[0]), "PMI_RANK": "0", "PMI_SIZE": "2", "PMI_JOBID": tt.jobID}
			p, err := Find(func(s string) string { return env[s] })
			require.NoError(t, err)
			_, err = p.Open(context.Background())
			require.ErrorContains(t, err, tt.err)
			require.NoError(t, server.Close())
		})
	}
}

// TestMapping: mappings of Hydra and Slurm.
func TestMapping(t *testing.T) {
	for _, tt := range []struct {
		mapping string
		size    int
		want    string // local rank/size of each rank
	}{
		{"(vector,(0,1,1))", 3, "0/3 1/3 2/3"},
		{"(vector,(0,3,2))", 6, "0/2 1/2 0/2 1/2 0/2 1/2"},
		{"(vector,(0,1,1),(1,1,3))", 6, "0/2 0/4 1/4 2/4 1/2 3/4"},
		{"(vector,(0,3,1),(0,3,1))", 6, "0/2 0/2 0/2 1/2 1/2 1/2"},
		{"(vector,(0,1,2),(1,2,1))", 4, "0/2 1/2 0/1 0/1"},
		{"(vector, (0, 2, 2), (2, 1, 1))", 5, "0/2 1/2 0/2 1/2 0/1"},
		{"", 2, "-1/-1 -1/-1"},
		{"(vector,(0,1))", 1, "-1/-1"},
		{"(vector,(0,0,1))", 1, "-1/-1"},
		{"(vector,(0,1,-1))", 1, "-1/-1"},
		{"(matrix,(0,1,1))", 1, "-1/-1"},
	} {
		var got []string
		for r := range tt.size {
			local, n := localOf(tt.mapping, r, tt.size)
			got = append(got, itoa(local)+"/"+itoa(n))
		}
		require.Equal(t, tt.want, strings.Join(got, " "), tt.mapping)
	}
	// A process manager may tell of a rank that the job has not got; who asked for it checks that.
	for _, size := range []int{0, 3} {
		local, n := localOf("(vector,(0,1,1))", 3, size)
		require.Equal(t, []int{-1, -1}, []int{local, n})
	}
}

func FuzzMapping(f *testing.F) {
	f.Add("(vector,(0,1,1),(1,1,3))", 5, 6)
	f.Fuzz(func(t *testing.T, mapping string, rank, size int) {
		if size < 0 || size > 1000 || rank < 0 {
			return
		}
		local, n := localOf(mapping, rank, size)
		require.True(t, local == -1 && n == -1 || 0 <= local && local < n && n <= size)
	})
}

func FuzzReplies(f *testing.F) {
	f.Add("    48cmd=kvs-get-response;found=TRUE;value=x;rc=0;")
	f.Add("cmd=get_result rc=-1 msg=key_nosuch_not_found value=unknown\n")
	f.Fuzz(func(t *testing.T, s string) {
		conn := struct {
			io.Reader
			io.WriteCloser
			deadlines
		}{Reader: strings.NewReader(s)}
		c := newChannel(conn)
		body, err := c.message()
		require.True(t, err != nil || len(body) <= maxReply)
		_ = parse(body, ";").check("kvs-get-response")
		_, _ = c.line()
	})
}

type deadlines struct{}

func (deadlines) SetDeadline(time.Time) error      { return nil }
func (deadlines) SetWriteDeadline(time.Time) error { return nil }

func itoa(n int) string { return strconv.Itoa(n) }
