package jobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/secure/securetest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

const (
	storeTLSVar  = "JOBTEST_STORE_TLS"  // each rank uses a Bootstrap of its own with this TLS
	configTLSVar = "JOBTEST_CONFIG_TLS" // the Config's
	tapVar       = "JOBTEST_TAP"        // ranks above 0 join through a tap; seen or hidden: whether it reads what they put
)

// store is the Bootstrap of storeTLSVar.
var store bootstrap.Bootstrap

// tapped is what has gone through the tap of this process.
var tapped struct {
	mu   sync.Mutex
	seen bytes.Buffer
}

func init() {
	roles["tlsrefused"] = tlsRefusedRole
	roles["tapped"] = tappedRole
	before := configure
	configure = func(ctx context.Context, c *p2p.Config) (err error) {
		if os.Getenv(tapVar) != "" && os.Getenv("RANK") != "0" {
			if err := openTap(); err != nil {
				return err
			}
		}
		c.TLS = os.Getenv(configTLSVar)
		tls := os.Getenv(storeTLSVar)
		if tls == "" {
			return before(ctx, c)
		}
		store, err = bootstrap.Detect(ctx, bootstrap.Options{TLS: tls})
		c.Bootstrap = store
		return err
	}
}

func issue(t *testing.T, a *securetest.Authority, name, host string) string {
	return "TAGMATCH_TLS=" + a.Issue(name, &x509.Certificate{DNSNames: []string{host}}, a)
}

func hostname(t *testing.T) string {
	host, err := os.Hostname()
	require.NoError(t, err)
	return host
}

// TestTLS runs jobs whose connections are encrypted. Inside a host they use shared memory as ever.
func TestTLS(t *testing.T) {
	files := issue(t, securetest.New(t), "rank", hostname(t))
	for kind, setting := range map[string]string{"secret": "TAGMATCH_TLS=secret", "files": files} {
		for role, arg := range map[string]int{"schedule": 30, "stream": 1000 / fewer(), "alltoall": 10, "orderly": 0} {
			for name, env := range map[string][]string{"rc": {"TAGMATCH_TRANSPORT=rc"}, "tmsrq": tmsrqEnv} {
				few := (name == "rc") == (kind == "files") || testlevel.Quick() && (kind == "files") == (role == "stream" || role == "orderly")
				if !testlevel.CI() && few {
					continue
				}
				t.Run(kind+"/"+role+"/"+name, func(t *testing.T) {
					r := job{n: 4, role: role, device: "tcp", arg: arg, seed: 1, env: append([]string{setting, "TAGMATCH_LOG=info"}, env...)}.run(t)
					require.Zero(t, r.code, "%s%s", r.out, r.err)
					require.Equal(t, 4, strings.Count(r.err, "connections between hosts are encrypted"), r.err)
				})
			}
		}
		t.Run(kind+"/auto", func(t *testing.T) {
			job{n: 3, role: "wires", device: "auto", env: []string{setting}}.succeed(t)
		})
	}
}

// TestTLSDiffers: ranks with different settings are named, by the rendezvous and, where a
// Bootstrap has none, by the cards of the ranks.
func TestTLSDiffers(t *testing.T) {
	t.Parallel()
	files := issue(t, securetest.New(t), "rank", hostname(t))
	for _, c := range []struct{ root, odd, rootKind, oddKind string }{
		{"TAGMATCH_TLS=secret", "TAGMATCH_TLS=off", "secret", "off"},
		{"TAGMATCH_TLS=", "TAGMATCH_TLS=secret", "off", "secret"},
		{files, "TAGMATCH_TLS=secret", "files", "secret"},
	} {
		r := job{n: 3, role: "hello", device: "tcp", env: []string{c.root, oddVar + "=" + c.odd}}.run(t)
		require.NotZero(t, r.code, "%s%s", r.out, r.err)
		require.Contains(t, r.err, fmt.Sprintf("rank 1 has TLS %s, rank 0 %s: TAGMATCH_TLS must be of one kind on all ranks", c.oddKind, c.rootKind))

		r = job{n: 3, role: "hello", device: "tcp", env: []string{c.root, oddVar + "=" + c.odd, storeTLSVar + "=off"}}.run(t)
		require.NotZero(t, r.code, "%s%s", r.out, r.err)
		require.Contains(t, r.err, fmt.Sprintf("rank 1 on %s has TLS (TAGMATCH_TLS) %s where rank 0 has %s: give all ranks the same", hostname(t), c.oddKind, c.rootKind))
	}
}

// TestTLSRefused: a rank whose certificate is not good does not join and, where it has joined by
// another way, is not connected to; the error names it and says why.
func TestTLSRefused(t *testing.T) {
	t.Parallel()
	ours, others := securetest.New(t), securetest.New(t)
	good := issue(t, ours, "rank", hostname(t))
	for odd, want := range map[string]string{
		issue(t, ours, "odd", "elsewhere"):   `the certificate is for \\?"elsewhere\\?", and for none of .*issue it for one of these`,
		issue(t, others, "odd", hostname(t)): `it must be of the job's roots`,
	} {
		r := job{n: 2, role: "hello", device: "tcp", env: []string{good, oddVar + "=" + odd}}.run(t)
		require.NotZero(t, r.code, "%s%s", r.out, r.err)
		require.Regexp(t, `rank 1 cannot join the job at .*TLS refused.*`+want, r.err)

		r = job{n: 2, role: "tlsrefused", device: "tcp", env: []string{good, oddVar + "=" + odd, storeTLSVar + "=off"}, keep: true}.run(t)
		require.Zero(t, r.code, "%s%s", r.out, r.err)
		require.Regexp(t, `refused: .*rank 1 .*TLS refused.*`+want, r.out)
		require.Regexp(t, `refused: .*rank 0 has given this rank up: .*TLS refused.*the certificate `, r.out)
	}
	r := job{n: 2, role: "hello", env: []string{"TAGMATCH_TLS=secret", noSecretVar + "=1"}}.run(t)
	require.NotZero(t, r.code, "%s%s", r.out, r.err)
	require.Contains(t, r.err, "the job has no secret, and Config.TLS (TAGMATCH_TLS) needs one: give Config.Secret")
}

// tlsRefusedRole has both ranks fail to reach each other.
func tlsRefusedRole(ctx context.Context, w *p2p.World) error {
	var err error
	if w.Rank() == 0 {
		err = w.Comm().Send(ctx, 1, 1, nil)
		if err == nil { // it waits to be sent
			_, err = w.Comm().Recv(ctx, 1, 1, nil)
		}
	} else {
		_, err = w.Comm().Recv(ctx, 0, 1, nil)
	}
	lost, ok := errors.AsType[*p2p.PeerError](err)
	if !ok {
		return fmt.Errorf("want the loss of a rank, got %w", err)
	}
	fmt.Println("refused:", lost)
	if err := store.Fence(ctx); err != nil { // both have heard of it
		return err
	}
	return w.Close()
}

// TestTLSTapped: who sees all that the ranks say to rank 0 learns nothing of their cards.
func TestTLSTapped(t *testing.T) {
	for tls, want := range map[string]string{"off": "seen", "secret": "hidden"} {
		job{n: 3, role: "tapped", device: "tcp", env: []string{"TAGMATCH_TLS=" + tls, tapVar + "=" + want}}.succeed(t)
	}
}

// TestTLSByConfig: a program's own setting covers the rendezvous as well.
func TestTLSByConfig(t *testing.T) {
	job{n: 3, role: "tapped", device: "tcp", env: []string{configTLSVar + "=secret", tapVar + "=hidden"}}.succeed(t)
}

// openTap has this process join through itself.
func openTap() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	to := os.Getenv("MASTER_PORT")
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", "127.0.0.1:"+to)
			if err != nil {
				_ = in.Close()
				continue
			}
			go tapOn(in, out)
			go tapOn(out, in)
		}
	}()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return err
	}
	return os.Setenv("MASTER_PORT", port)
}

func tapOn(dst, src net.Conn) {
	_, _ = io.Copy(io.MultiWriter(tapWriter{}, dst), src)
	_ = dst.(*net.TCPConn).CloseWrite()
}

type tapWriter struct{}

func (tapWriter) Write(b []byte) (int, error) {
	tapped.mu.Lock()
	defer tapped.mu.Unlock()
	return tapped.seen.Write(b)
}

// tappedRole looks for the cards of the ranks in what this rank's tap has seen.
func tappedRole(ctx context.Context, w *p2p.World) error {
	if err := allToAllRole(ctx, w); err != nil || w.Rank() == 0 {
		return err
	}
	tapped.mu.Lock()
	defer tapped.mu.Unlock()
	if !bytes.Contains(tapped.seen.Bytes(), []byte("tagmatch")) {
		return errors.New("this rank has not joined through its tap")
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	hash := sha256.Sum256(boot) // whose beginning is a part of each card
	want := os.Getenv(tapVar) == "seen"
	for _, text := range []string{"p2p.card", string(hash[:8])} {
		if bytes.Contains(tapped.seen.Bytes(), []byte(text)) != want {
			return fmt.Errorf("%q is %s", text, map[bool]string{true: "hidden", false: "seen"}[want])
		}
	}
	return nil
}
