package rendezvous

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/secure/securetest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// TestTLSKindsDiffer: a rank with another kind of TLS than rank 0 is refused, and both say why.
func TestTLSKindsDiffer(t *testing.T) {
	all := map[string]string{"off": "off", "secret": "secret", "files": securetest.ThisHost(t)}
	secret := NewSecret("test")
	for root, rootTLS := range all {
		for rank, rankTLS := range all {
			if root == rank {
				continue
			}
			h, port := openStoreTLS(t, 2, secret, rootTLS)
			me := candidateOf(1, 2, port)
			me = me.with(t, secret, rankTLS)
			_, err := me.join(ranktest.Timeout(t))
			want := fmt.Sprintf("rank 1 has TLS %s, rank 0 %s: TAGMATCH_TLS must be of one kind on all ranks", rank, root)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, want)
			require.Contains(t, h.absent(), want)
		}
	}
}

// TestTLSCertificates: where a certificate is not good both ends say why, whichever has it.
func TestTLSCertificates(t *testing.T) {
	ours, others := securetest.New(t), securetest.New(t)
	good := ours.Issue("good", securetest.HostCertificate(t), ours)
	secret := NewSecret("test")
	for name, c := range map[string]struct{ root, rank, want string }{
		"good":                 {good, good, ""},
		"as dialled":           {ours.Issue("address", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, ours), good, ""},
		"another host's":       {good, ours.Issue("elsewhere", &x509.Certificate{DNSNames: []string{"elsewhere"}}, ours), `the certificate is for \\?"elsewhere\\?", and for none of .* issue it for one of these`},
		"another host's, root": {ours.Issue("elsewhere0", &x509.Certificate{DNSNames: []string{"elsewhere"}}, ours), good, `the certificate is for \\?"elsewhere\\?", and for none of .* issue it for one of these`},
		"of other roots":       {good, others.Issue("other", securetest.HostCertificate(t), ours), `signed by unknown authority .*it must be of the job's roots`},
		"of other roots, root": {others.Issue("other0", securetest.HostCertificate(t), ours), good, `signed by unknown authority .*it must be of the job's roots`},
		"other roots":          {good, ours.Issue("stray", securetest.HostCertificate(t), others), `signed by unknown authority .*it must be of the job's roots`},
	} {
		t.Run(name, func(t *testing.T) {
			h, port := openStoreTLS(t, 2, secret, c.root)
			me := candidateOf(1, 2, port)
			me = me.with(t, secret, c.rank)
			b, err := me.join(ranktest.Timeout(t))
			if c.want == "" {
				require.NoError(t, err)
				require.NoError(t, b.Close())
				return
			}
			require.ErrorIs(t, err, ErrRefused)
			require.Regexp(t, "rank 1 cannot join the job at .*TLS refused.*"+c.want+`.*\(TAGMATCH_TLS\)`, err.Error())
			require.Eventually(t, func() bool { // rank 0 may hear of it later
				return regexp.MustCompile("rank 1: TLS refused.*" + c.want).MatchString(h.absent())
			}, testlevel.Patience(30*time.Second), time.Millisecond)
		})
	}
}

// TestTLSTree: what was put comes down the tree over TLS as well.
func TestTLSTree(t *testing.T) {
	files := securetest.ThisHost(t)
	list := treeJob(t, 7, files)
	exchangeRounds(t, list, 0, 5)
	require.Equal(t, 2, direct(list))
	for _, rank := range []int{1, 2} {
		r := list[rank].children
		r.mu.Lock()
		require.Len(t, r.children, 2)
		for m := range r.children {
			require.IsType(t, &tls.Conn{}, m.f.w)
		}
		r.mu.Unlock()
	}
}

// tap passes connections on, and keeps what has gone over them.
type tap struct {
	port string
	// change, where it is set, may change b, which is all that goes to the dialling end.
	change func(b []byte)

	mu   sync.Mutex
	seen bytes.Buffer
}

func openTap(t *testing.T, to string, change func([]byte)) *tap {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	p := &tap{port: port, change: change}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(in, to) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return p
}

func (p *tap) serve(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("tcp", "127.0.0.1:"+to)
	if err != nil {
		return
	}
	defer out.Close()
	var wg sync.WaitGroup
	wg.Go(func() { p.pass(out, in, nil) })
	p.pass(in, out, p.change)
	wg.Wait()
}

func (p *tap) pass(dst, src net.Conn, change func([]byte)) {
	b := make([]byte, 64<<10)
	for {
		n, err := src.Read(b)
		p.mu.Lock()
		p.seen.Write(b[:n])
		p.mu.Unlock()
		if change != nil && n > 0 {
			change(b[:n])
		}
		if _, failed := dst.Write(b[:n]); err != nil || failed != nil {
			_ = dst.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

func (p *tap) has(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.seen.Bytes(), []byte(text))
}

// tappedJob starts a job of three ranks of which the first joins through a tap.
func tappedJob(t *testing.T, tls string) (*tap, []*Endpoint) {
	at := candidates(t, 3)
	p := openTap(t, at(0).port, nil)
	list := make([]*Endpoint, 3)
	ranktest.Each(t, 3, func(r int) (err error) {
		me := at(r).with(t, given(0x5a), tls)
		if r == 1 {
			me.port = p.port
		}
		list[r], err = me.join(ranktest.Timeout(t))
		return err
	})
	t.Cleanup(func() { closeAll(t, list) })
	return p, list
}

// TestTLSHidesWhatIsPut: who sees the connection of a rank sees neither keys nor values.
func TestTLSHidesWhatIsPut(t *testing.T) {
	for _, setting := range []string{"off", "secret", securetest.ThisHost(t)} {
		p, list := tappedJob(t, setting)
		ctx := ranktest.Timeout(t)
		ranktest.Each(t, 3, func(r int) error {
			if err := list[r].Put(ctx, "the key", fmt.Appendf(nil, "the value of rank %d", r)); err != nil {
				return err
			}
			return list[r].Fence(ctx)
		})
		require.NoError(t, list[1].ReportGivenUp(2, "the reason"))
		require.Equal(t, Loss{1, "the reason", true}, <-list[2].Losses())
		require.True(t, p.has(magic))
		for _, text := range []string{"the key", "the value of rank 0", "the value of rank 1", "the reason"} {
			require.Equal(t, setting == "off", p.has(text), "%q with TLS %s", text, filepath.Base(setting))
		}
	}
}

// TestTLSFlippedInTheHandshake: a rank whose handshake was changed on its way tries again.
func TestTLSFlippedInTheHandshake(t *testing.T) {
	const plain = int64(prefaceSize + headerSize + nonceSize + headerSize + macSize) // up to ACCEPT
	secret := NewSecret("test")
	for _, at := range []int64{5, 20, 80, 200, 500} {
		_, port := openStoreTLS(t, 2, secret, "secret")
		var passed, flips int64
		p := openTap(t, port, func(b []byte) {
			from := atomic.AddInt64(&passed, int64(len(b))) - int64(len(b))
			if i := plain + at - from; i >= 0 && i < int64(len(b)) {
				b[i] ^= 4
				atomic.AddInt64(&flips, 1)
			}
		})
		me := candidateOf(1, 2, p.port)
		me = me.with(t, secret, "secret")
		b, err := me.join(ranktest.Timeout(t))
		require.NoError(t, err)
		require.EqualValues(t, 1, atomic.LoadInt64(&flips))
		require.Greater(t, atomic.LoadInt64(&passed), 2*plain, "at the second try")
		require.NoError(t, b.Close())
	}
}

// TestTLSFlippedLater: what comes after the handshake, and was changed on its way, is not taken: a
// rank that waits for the others does not join, one that has joined has lost rank 0.
func TestTLSFlippedLater(t *testing.T) {
	const want = "what came was changed on its way: local error: tls: bad record MAC"
	secret := NewSecret("test")
	for _, welcome := range []bool{true, false} {
		h, port := openStoreTLS(t, 3, secret, "secret")
		var armed atomic.Bool
		p := openTap(t, port, func(b []byte) {
			if armed.Load() {
				b[len(b)-1] ^= 1
			}
		})
		ctx := ranktest.Timeout(t)
		join := func(rank int, port string, ready func()) (*Endpoint, error) {
			me := candidateOf(rank, 3, port)
			me = me.with(t, secret, "secret")
			me.Logger = ranktest.On("rendezvous: waiting for the other ranks", ready)
			return me.join(ctx)
		}
		waiting, waits := ranktest.Once()
		list := make([]*Endpoint, 3)
		errs := ranktest.Outcomes(2, func(i int) (err error) {
			if i == 0 {
				list[1], err = join(1, p.port, waits)
				return err
			}
			if err := ranktest.Within(ctx, waiting); err != nil {
				return err
			}
			armed.Store(welcome)
			list[2], err = join(2, port, func() {})
			return err
		})
		require.NoError(t, errs[1])
		if welcome {
			require.ErrorIs(t, errs[0], ErrProtocol)
			require.ErrorContains(t, errs[0], "rank 1 cannot join")
			require.ErrorContains(t, errs[0], want)
		} else {
			require.NoError(t, errs[0])
			armed.Store(true)
			h.handle(0, &fenceMsg{seq: 1})
			errs = ranktest.Outcomes(2, func(i int) error { return list[1+i].Fence(ctx) })
			require.ErrorContains(t, errs[0], want)
			require.NoError(t, list[1].Close())
		}
		loss := <-list[2].Losses()
		require.Equal(t, 1, loss.Rank)
		require.NoError(t, list[2].Close())
	}
}

// TestNothingBeforeTLS: what somebody puts between the authentication and TLS is taken for neither.
func TestNothingBeforeTLS(t *testing.T) {
	secret := NewSecret("test")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		f := newFramer(conn)
		_, _ = f.readPreface()
		hello, err := expect[*helloMsg](f, maxHandshake)
		if err != nil {
			return
		}
		c := &challengeMsg{nonce: newNonce()}
		_, _ = f.writePreface(), f.write(c)
		_, _ = expect[*proofMsg](f, maxHandshake)
		var both bytes.Buffer
		f.w = &both
		_ = f.write(&acceptMsg{newSession(secret.Bytes, hello, c).mac(labelRoot)})
		_ = f.write(&welcomeMsg{})
		_, _ = conn.Write(both.Bytes())
		_, _ = io.Copy(io.Discard, conn)
	}()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	me := candidateOf(1, 2, port)
	me = me.with(t, secret, "secret")
	_, err = me.join(ranktest.Timeout(t))
	require.ErrorIs(t, err, ErrProtocol)
	require.ErrorContains(t, err, "bytes came where TLS begins")
}
