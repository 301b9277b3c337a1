package bootstrap

import (
	"context"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"
	"github.com/tagmatch/tagmatch/bootstrap/internal/tcpstore/tcpstoretest"
)

// workerEnv is the environment of torchrun's workers on one host, whose store is at addr.
func workerEnv(addr string, rank, size int) vars {
	_, port, _ := net.SplitHostPort(addr)
	r, n := strconv.Itoa(rank), strconv.Itoa(size)
	return envOf(rank, size, port).with("TORCHELASTIC_USE_AGENT_STORE", "True", "TORCHELASTIC_RUN_ID", "none",
		"TORCHELASTIC_RESTART_COUNT", "0", EnvLocalRank, r, EnvLocalWorldSize, n)
}

// together has the workers of a store at addr join, rank 0 once the other waits for it, and end.
func together(t *testing.T, s *tcpstoretest.Server, addr string) {
	t.Helper()
	ctx := ranktest.Timeout(t)
	ranktest.Each(t, 2, func(r int) error {
		if r == 0 {
			if err := s.AwaitReader(ctx); err != nil {
				return err
			}
		}
		b, err := Detect(ctx, options(workerEnv(addr, r, 2)))
		if err != nil {
			return err
		}
		return b.Close()
	})
}

// TestSecondProgram: the workers of torchrun run one program after the other. The second must not
// take the address of the first.
func TestSecondProgram(t *testing.T) {
	for name, old := range map[string]bool{"2.x": false, "1.x": true} {
		t.Run(name, func(t *testing.T) {
			s, err := tcpstoretest.Start("127.0.0.1:0", old)
			require.NoError(t, err)
			defer s.Close()
			for range 2 {
				together(t, s, s.Addr())
				require.Empty(t, s.Keys())
			}
		})
	}
}

// TestSlowStore: a store that does not answer for more than a second is none of PyTorch 1.x for
// that.
func TestSlowStore(t *testing.T) {
	t.Parallel()
	s, err := tcpstoretest.Start("127.0.0.1:0", false)
	require.NoError(t, err)
	defer s.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		for slow := 2; ; slow-- {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if slow > 0 {
					time.Sleep(1200 * time.Millisecond)
				}
				store, err := net.Dial("tcp", s.Addr())
				if err != nil {
					return
				}
				defer store.Close()
				go func() { _, _ = io.Copy(store, conn) }()
				_, _ = io.Copy(conn, store)
			}()
		}
	}()
	together(t, s, ln.Addr().String())
}

// TestSecondJobAtTheAddress: a rank that begins the next job of a script while rank 0 still ends
// the last one waits for rank 0.
func TestSecondJobAtTheAddress(t *testing.T) {
	port, ctx := freePort(t), ranktest.Timeout(t)
	early, tooEarly := ranktest.Once()
	ranktest.Each(t, 3, func(r int) error {
		for job := range 2 {
			opt := options(envOf(r, 3, port).with(EnvSecret, hexSecret))
			opt.Linger = 20 * time.Second // rank 0 waits for rank 2, and that until rank 1 is too early
			if r == 1 && job == 1 {
				opt.Logger = ranktest.On("rendezvous: trying again", tooEarly)
			}
			b, err := Detect(ctx, opt)
			if err == nil && r == 2 {
				err = ranktest.Within(ctx, early)
			}
			if err == nil {
				err = b.Close()
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// TestFailureIsTold: the others hear why rank 0 does not serve, also those that look later.
func TestFailureIsTold(t *testing.T) {
	dir := t.TempDir() + "/s"
	ctx, told := context.WithCancel(ranktest.Timeout(t))
	defer told()
	errs := ranktest.Outcomes(2, func(r int) error {
		opt := options(vars{EnvRank: strconv.Itoa(r), EnvWorldSize: "2", EnvStore: dir, EnvJobID: "j", EnvListen: "192.0.2.1"}) // no host's
		opt.toldFor = time.Minute
		if r == 1 {
			defer told()
			for ctx.Err() == nil {
				if published, _ := filepath.Glob(dir + "/j.*"); published != nil {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		_, err := Detect(ctx, opt)
		return err
	})
	require.ErrorContains(t, errs[0], `rank 0 cannot listen on "192.0.2.1"`)
	require.ErrorContains(t, errs[1], `rank 0 cannot serve the rendezvous: "rank 0 cannot listen on \"192.0.2.1\"`)
	var opt Options
	opt.setDefaults()
	require.Equal(t, time.Second, opt.toldFor)
}

// TestListenAt: where a name is loopback at rank 0's host alone, as Debian has it, other hosts must
// reach rank 0 nevertheless.
func TestListenAt(t *testing.T) {
	debian, outside := netip.MustParseAddr("127.0.1.1"), netip.MustParseAddr("10.1.2.3")
	for _, tt := range []struct {
		host            string
		ip              netip.Addr
		local           int // of 2 ranks; -1: not known
		secret          bool
		want, wantError string
	}{
		{host: "node1", ip: debian, local: 1, secret: true, want: ""},
		{host: "node1", ip: debian, local: -1, secret: true, want: ""},
		{host: "node1", ip: debian, local: 2, secret: true, want: "127.0.1.1"},
		{host: "node1", ip: debian, local: 1, wantError: "no job secret, but only 1 of 2 ranks are on this host"},
		{host: "node1", ip: debian, local: -1, want: "127.0.1.1"},
		{host: "127.0.1.1", ip: debian, local: 1, secret: true, want: "127.0.1.1"},
		{host: "localhost", ip: rendezvous.Loopback, local: -1, secret: true, want: "127.0.0.1"},
		{host: "node1", ip: outside, local: -1, want: "127.0.0.1"},
		{host: "node1", ip: outside, local: 2, secret: true, want: ""},
	} {
		p := &envPlan{job: jobVars{host: tt.host, Job: rendezvous.Job{Size: 2, LocalSize: tt.local}}}
		if tt.secret {
			p.secret = rendezvous.NewSecret("")
		}
		got, err := p.listenAt([]netip.Addr{tt.ip})
		if tt.wantError != "" {
			require.ErrorContains(t, err, tt.wantError)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tt.want, got, "%+v", tt)
	}
}
