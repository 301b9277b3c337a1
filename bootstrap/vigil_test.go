package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// noticeLog is where a rank's notices go.
type noticeLog struct {
	mu    sync.Mutex
	lines []string
	grew  chan struct{}
}

// noticesOf has the notices of a rank go to a log, the first one after a moment.
func noticesOf(opt *Options) *noticeLog {
	l := &noticeLog{grew: make(chan struct{}, 1)}
	opt.firstNotice, opt.notices = 10*time.Millisecond, l
	return l
}

func (l *noticeLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	l.lines = append(l.lines, string(b))
	l.mu.Unlock()
	select {
	case l.grew <- struct{}{}:
	default:
	}
	return len(b), nil
}

// await waits for a notice with text.
func (l *noticeLog) await(t *testing.T, text string) string {
	t.Helper()
	for end := time.After(30 * time.Second); ; {
		l.mu.Lock()
		lines := l.lines
		l.mu.Unlock()
		for _, s := range lines {
			if strings.Contains(s, text) {
				return s
			}
		}
		select {
		case <-l.grew:
		case <-end:
			require.Fail(t, "no such notice", "%q: %q", text, lines)
		}
	}
}

// TestNoticesArePrintable: a stranger's words forge no line, and move no cursor.
func TestNoticesArePrintable(t *testing.T) {
	opt := options(nil)
	log := noticesOf(&opt)
	stop := opt.vigil(0, func() string { return "for é: \x1b[2J\ntagmatch: all is well\r" })
	line := log.await(t, "all is well")
	stop()
	require.Contains(t, line, "for é: \ufffd[2J\ufffdtagmatch: all is well\ufffd\n")
}

// stuckOutput is an output that nobody takes until it is let go.
type stuckOutput struct{ began, letGo chan struct{} }

func (o stuckOutput) Write(b []byte) (int, error) {
	close(o.began)
	<-o.letGo
	return len(b), nil
}

// TestNoticesThatNobodyTakes do not hold up the join.
func TestNoticesThatNobodyTakes(t *testing.T) {
	out := stuckOutput{make(chan struct{}), make(chan struct{})}
	defer close(out.letGo)
	opt := options(nil)
	opt.firstNotice, opt.notices = time.Millisecond, out
	ended := make(chan struct{})
	stop := opt.vigil(0, func() string { return "for nothing" })
	<-out.began
	go func() {
		stop()
		close(ended)
	}()
	require.NoError(t, within(timeout(t), ended))
}

// TestNoticesOfStrangers: rank 0 tells of the last one that does not greet as a rank does, or not
// to the end, behind the ranks that it has turned away.
func TestNoticesOfStrangers(t *testing.T) {
	h, port := openStore(t, 3, madeSecret("test"))
	const ranks = "still missing: ranks 1, 2 of 3; turned away: 10.0.0.9: RANK is 7; 127.0.0.1: "
	h.refuse("10.0.0.9:1", &rejectMsg{rejectRank, "RANK is 7"})
	for range 5 {
		h.noteStranger("10.0.0.8:1", "it is one")
	}
	const ended, stranger = "the connection ended before its greeting was complete", "it does not greet as a rank does"
	for _, tt := range [][2]string{{"", ended}, {magic, ended}, {"GET / HTTP/1.1\r\n\r\n", stranger}, {"GET /again HTTP/1.1\r\n\r\n", stranger}} {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		require.NoError(t, err)
		_, err = conn.Write([]byte(tt[0]))
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		_, _ = io.Copy(io.Discard, conn) // until rank 0 has done with it
		conn.Close()
		require.Contains(t, h.absent(), ranks+tt[1])
	}
	// The last one is counted when it has ended.
	require.Eventually(t, func() bool { return strings.Contains(h.absent(), "; of strangers 4 connections in all") }, 30*time.Second, time.Millisecond)
}

// TestNoticesOfRankZero: without a Logger rank 0 says who is missing and who was turned away, again
// and again, until all are ready.
func TestNoticesOfRankZero(t *testing.T) {
	env := jobEnv(t, 4)
	opt := options(env(0))
	log := noticesOf(&opt)
	ctx := timeout(t)
	list, errs := make([]Bootstrap, 4), make([]error, 4)
	var ranks sync.WaitGroup
	detect := func(r int, o Options) { ranks.Go(func() { list[r], errs[r] = Detect(ctx, o) }) }
	detect(0, opt)
	port, host := env(0)[EnvMasterPort], hostName()
	require.Regexp(t, fmt.Sprintf(`^tagmatch: rank 0 on \Q%s\E has waited (\d+m)?\d+s at 127\.0\.0\.1:%s for all ranks to join; still missing: ranks 1-3 of 4(;.*)?\n$`, host, port),
		log.await(t, "ranks 1-3 of 4"))
	_, err := Detect(ctx, options(envOf(1, 5, port)))
	require.ErrorIs(t, err, ErrRefused)
	require.Contains(t, log.await(t, "127.0.0.1: WORLD_SIZE is 4 at rank 0 but 5 at rank 1"), "; turned away: ")
	for r := 1; r < 4; r++ {
		detect(r, options(env(r)))
	}
	ranks.Wait()
	require.NoError(t, errors.Join(errs...))
	fence := func(r int) { ranks.Go(func() { errs[r] = list[r].Fence(ctx) }) }
	fence(0)
	fence(2)
	log.await(t, "for all ranks that have joined to get ready; still missing: ranks 1, 3\n")
	fence(1)
	fence(3)
	ranks.Wait()
	require.NoError(t, errors.Join(errs...))
	closeAll(t, list)
}

// TestNoticesOfOthers: a rank says why it does not reach rank 0, and nothing once it has: rank 0
// knows better.
func TestNoticesOfOthers(t *testing.T) {
	port := freePort(t)
	ctx, cancel := context.WithCancel(timeout(t))
	defer cancel()
	var ends []chan error
	join := func(v vars) *noticeLog {
		opt := options(v)
		log := noticesOf(&opt)
		end := make(chan error, 1)
		ends = append(ends, end)
		go func() {
			_, err := Detect(ctx, opt)
			end <- err
		}()
		return log
	}
	require.Regexp(t, `^tagmatch: rank 1 on \S+ has waited (\d+m)?\d+s for rank 0 at MASTER_ADDR:MASTER_PORT=127.0.0.1:`+port+`: .*connection refused\n$`,
		join(envOf(1, 3, port)).await(t, "refused"))
	join(envOf(2, 3, port).with(EnvMasterAddr, "name..invalid")).await(t, "lookup name..invalid")
	dir := t.TempDir()
	join(vars{EnvRank: "1", EnvWorldSize: "2", EnvStore: dir, EnvJobID: "j"}).await(t, "for rank 0 to publish its address (directory "+dir+")")
	cancel()
	for _, end := range ends {
		require.ErrorIs(t, <-end, context.Canceled)
	}

	d := dialer{job: jobVars{rank: 3, localRank: 0}, at: []string{"h:1"}, from: "X"}
	require.Equal(t, "for an answer of rank 0 at X=h:1", d.waits())
	d.notes("no route")
	require.Equal(t, "for rank 0 at X=h:1: no route", d.waits())
	d.job.localRank = 1
	require.Empty(t, d.waits(), "the first rank of the host says it")
	d.job.localRank = -1
	require.NotEmpty(t, d.waits())
	d.job.rank = 500
	require.Empty(t, d.waits(), "enough others do")
	d.job.localRank = 0
	d.notes("")
	require.Empty(t, d.waits(), "rank 0 has let it in")
}

// TestNoticesGoToStderr: what a program does not choose.
func TestNoticesGoToStderr(t *testing.T) {
	var opt Options
	opt.setDefaults()
	require.Equal(t, os.Stderr, opt.notices)
	require.Equal(t, 10*time.Second, opt.firstNotice)
}
