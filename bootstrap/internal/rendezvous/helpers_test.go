package rendezvous

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/secure"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

func TestMain(m *testing.M) {
	if port := os.Getenv(othersVar); port != "" {
		playOthers(port)
		return
	}
	testlevel.ManyWait()
	goleak.VerifyTestMain(m)
}

// given is a secret that a job was given.
func given(b byte) Secret {
	return Secret{Bytes: bytes.Repeat([]byte{b}, SecretSize), Origin: EnvSecret}
}

// candidate is all that a rank joins with.
type candidate struct {
	Config
	Job
	secret Secret
	ln     net.Listener // of rank 0
	host   string       // where the others dial it; "": loopback
	port   string
}

// candidateOf is a rank above 0 of a job whose rank 0 serves at port.
func candidateOf(rank, size int, port string) candidate {
	return candidate{Config: Config{Linger: 300 * time.Millisecond, handshake: 2 * time.Second},
		Job: Job{Launcher: "test", Rank: rank, Size: size, LocalRank: -1, LocalSize: -1}, port: port}
}

// candidates are those of a job of n ranks.
func candidates(t *testing.T, n int) func(rank int) candidate {
	ln, port := listen(t)
	t.Cleanup(func() { ln.Close() })
	return func(rank int) candidate {
		c := candidateOf(rank, n, port)
		if rank == 0 {
			c.ln = ln
		}
		return c
	}
}

func listen(t testing.TB) (ln net.Listener, port string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ = net.SplitHostPort(ln.Addr().String())
	return ln, port
}

// with is c with a secret and, unless setting is "", TLS.
func (c candidate) with(t testing.TB, secret Secret, setting string) candidate {
	c.secret, c.TLS = secret, layer(t, setting)
	return c
}

func layer(t testing.TB, setting string) *secure.Layer {
	parsed, err := secure.Parse(setting)
	require.NoError(t, err)
	l, err := parsed.Load()
	require.NoError(t, err)
	return l
}

func (c candidate) join(ctx context.Context) (*Endpoint, error) {
	c.SetDefaults()
	if c.ln == nil {
		d := Dialer{Config: &c.Config, Job: c.Job, Secret: c.secret, At: []string{net.JoinHostPort(cmp.Or(c.host, "127.0.0.1"), c.port)}, From: "ADDRESS"}
		return d.Join(ctx)
	}
	if c.secret.Bytes == nil {
		c.secret = NewSecret(HandedOut)
	}
	return c.Serve(ctx, &c.Config, c.ln, c.secret)
}

// hubOf is the hub of the job whose rank 0 is root.
func hubOf(root *Endpoint) *hub {
	switch up := root.up.(type) {
	case *localLink:
		return up.hub
	case *rootLink:
		return up.hub
	}
	panic("not rank 0")
}

// portOf is the port at which rank 0 serves.
func portOf(root *Endpoint) string {
	return strconv.Itoa(root.up.(*rootLink).store.ln.Addr().(*net.TCPAddr).Port)
}

// awaitArrival waits until n ranks are in the fence.
func awaitArrival(h *hub, n int) error {
	arrived := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.arrived
	}
	for end := time.Now().Add(testlevel.Patience(30 * time.Second)); arrived() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%d ranks are in the fence, want %d", arrived(), n)
		}
	}
	return nil
}

// startJob joins n ranks over TCP.
func startJob(t *testing.T, n int, secret Secret, tls string) []*Endpoint {
	t.Helper()
	return startWith(t, n, func(c candidate) candidate { return c.with(t, secret, tls) })
}

// startWith joins n ranks, each as change has it.
func startWith(t *testing.T, n int, change func(candidate) candidate) []*Endpoint {
	t.Helper()
	at, ctx := candidates(t, n), ranktest.Timeout(t)
	list := make([]*Endpoint, n)
	ranktest.Each(t, n, func(r int) (err error) {
		list[r], err = change(at(r)).join(ctx)
		return err
	})
	t.Cleanup(func() { closeAll(t, list) })
	return list
}

func closeAll(t *testing.T, list []*Endpoint) {
	t.Helper()
	ranktest.Each(t, len(list), func(r int) error {
		if list[r] == nil {
			return nil
		}
		return list[r].Close()
	})
}
