package bootstrap

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var hexSecret = strings.Repeat("5a", SecretSize)

// vars is an environment.
type vars map[string]string

func (v vars) get(name string) string { return v[name] }

func (v vars) with(more ...string) vars {
	c := vars{}
	for k, s := range v {
		c[k] = s
	}
	for i := 0; i < len(more); i += 2 {
		c[more[i]] = more[i+1]
	}
	return c
}

// freePort returns a free port, which another test may take before it is used: see jobEnv.
func freePort(t *testing.T) string { return strconv.Itoa(portstest.Free(t, 1)[0]) }

// jobEnv returns the environment of each rank. Where sockets can be inherited, rank 0 gets a
// listening one, so that no other test can take its port.
func jobEnv(t *testing.T, n int) func(rank int) vars { return jobEnvAt(t, n, "127.0.0.1") }

func jobEnvAt(t *testing.T, n int, ip string) func(rank int) vars {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	fd := handOver(t, ln.(*net.TCPListener))
	ln.Close()
	return func(rank int) vars {
		if rank == 0 {
			return envOf(rank, n, port).with(EnvRendezvousFD, fd)
		}
		return envOf(rank, n, port)
	}
}

func envOf(rank, size int, port string) vars {
	return vars{"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
}

func options(v vars) Options {
	return Options{Getenv: v.get, Linger: 300 * time.Millisecond}
}

func closeAll(t *testing.T, list []Bootstrap) {
	t.Helper()
	ranktest.Each(t, len(list), func(r int) error {
		if list[r] == nil {
			return nil
		}
		return list[r].Close()
	})
}
