package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap/internal/ranktest"
	"github.com/tagmatch/tagmatch/internal/ports/portstest"
	"github.com/tagmatch/tagmatch/internal/testlevel"
)

// noticeLog is where a rank's notices go.
type noticeLog struct {
	mu    sync.Mutex
	lines []string
	grew  chan struct{}
}

// noticesOf has the notices of a rank go to a log, the first one after a moment.
func noticesOf(me *Config) *noticeLog {
	l := &noticeLog{grew: make(chan struct{}, 1)}
	me.FirstNotice, me.Notices = 10*time.Millisecond, l
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
	for end := time.After(testlevel.Patience(30 * time.Second)); ; {
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
	me := candidate{}
	log := noticesOf(&me.Config)
	stop := me.Vigil(0, func() string { return "for é: \x1b[2J\ntagmatch: all is well\r" })
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
	me := candidate{}
	me.FirstNotice, me.Notices = time.Millisecond, out
	ended := make(chan struct{})
	stop := me.Vigil(0, func() string { return "for nothing" })
	<-out.began
	go func() {
		stop()
		close(ended)
	}()
	require.NoError(t, ranktest.Within(ranktest.Timeout(t), ended))
}

// TestNoticesOfStrangers: rank 0 tells of the last one that does not greet as a rank does, or not
// to the end, behind the ranks that it has turned away.
func TestNoticesOfStrangers(t *testing.T) {
	h, port := openStore(t, 3, NewSecret("test"))
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
	require.Eventually(t, func() bool { return strings.Contains(h.absent(), "; of strangers 4 connections in all") }, testlevel.Patience(30*time.Second), time.Millisecond)
}

// TestNoticesOfRankZero: without a Logger rank 0 says who is missing and who was turned away, again
// and again, until all are ready.
func TestNoticesOfRankZero(t *testing.T) {
	at := candidates(t, 4)
	me := at(0)
	log := noticesOf(&me.Config)
	ctx := ranktest.Timeout(t)
	list, errs := make([]*Endpoint, 4), make([]error, 4)
	var ranks sync.WaitGroup
	join := func(r int, s candidate) { ranks.Go(func() { list[r], errs[r] = s.join(ctx) }) }
	join(0, me)
	port, host := at(0).port, hostName()
	require.Regexp(t, fmt.Sprintf(`^tagmatch: rank 0 on \Q%s\E has waited (\d+m)?\d+s at 127\.0\.0\.1:%s for all ranks to join; still missing: ranks 1-3 of 4(;.*)?\n$`, host, port),
		log.await(t, "ranks 1-3 of 4"))
	_, err := candidateOf(1, 5, port).join(ctx)
	require.ErrorIs(t, err, ErrRefused)
	require.Contains(t, log.await(t, "127.0.0.1: WORLD_SIZE is 4 at rank 0 but 5 at rank 1"), "; turned away: ")
	for r := 1; r < 4; r++ {
		join(r, at(r))
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
	port := strconv.Itoa(portstest.Free(t, 1)[0])
	ctx, cancel := context.WithCancel(ranktest.Timeout(t))
	defer cancel()
	var ends []chan error
	join := func(me candidate) *noticeLog {
		log := noticesOf(&me.Config)
		end := make(chan error, 1)
		ends = append(ends, end)
		go func() {
			_, err := me.join(ctx)
			end <- err
		}()
		return log
	}
	require.Regexp(t, `^tagmatch: rank 1 on \S+ has waited (\d+m)?\d+s for rank 0 at ADDRESS=127.0.0.1:`+port+`: .*connection refused\n$`,
		join(candidateOf(1, 3, port)).await(t, "refused"))
	lost := candidateOf(2, 3, port)
	lost.host = "name..invalid"
	join(lost).await(t, "lookup name..invalid")
	cancel()
	for _, end := range ends {
		require.ErrorIs(t, <-end, context.Canceled)
	}

	d := Dialer{Job: Job{Rank: 3, LocalRank: 0}, At: []string{"h:1"}, From: "X"}
	require.Equal(t, "for an answer of rank 0 at X=h:1", d.waits())
	d.notes("no route")
	require.Equal(t, "for rank 0 at X=h:1: no route", d.waits())
	d.Job.LocalRank = 1
	require.Empty(t, d.waits(), "the first rank of the host says it")
	d.Job.LocalRank = -1
	require.NotEmpty(t, d.waits())
	d.Job.Rank = 500
	require.Empty(t, d.waits(), "enough others do")
	d.Job.LocalRank = 0
	d.notes("")
	require.Empty(t, d.waits(), "rank 0 has let it in")
}

// TestNoticesGoToStderr: what a program does not choose.
func TestNoticesGoToStderr(t *testing.T) {
	var me Config
	me.SetDefaults()
	require.Equal(t, os.Stderr, me.Notices)
	require.Equal(t, 10*time.Second, me.FirstNotice)
}
