package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/inspect/doors"
	"github.com/tagmatch/tagmatch/internal/inspect/meters"
	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
)

// TestMetrics: the numbers of this process, a job of one rank, are printed and served.
func TestMetrics(t *testing.T) {
	w, err := p2p.Init(context.Background(), p2p.Config{})
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, w.Comm().Send(context.Background(), 0, 1, make([]byte, 1000)))
	want := fmt.Sprintf(`tagmatch_sent_bytes_total{job="%s",rank="0",program="tagmatch.test",protocol="eager"} 1000`, w.Metrics().Job)
	code, out, errs := command("metrics")
	require.Zero(t, code, errs)
	require.Contains(t, out, want)
	require.Contains(t, out, fmt.Sprintf("tagmatch_up{job=\"%s\",rank=\"0\",program=\"tagmatch.test\"} 1\n", w.Metrics().Job))

	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	served := make(chan error)
	go func() { served <- serveMetrics(ctx, "127.0.0.1:0", write) }()
	line := make([]byte, 100)
	n, err := read.Read(line)
	require.NoError(t, err)
	url := strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "serving "))
	client := http.Client{Timeout: testlevel.Patience(time.Minute)}
	r, err := client.Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, meters.ContentType, r.Header.Get("Content-Type"))
	require.Contains(t, string(body), want)
	r, err = client.Get(url + "x")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusNotFound, r.StatusCode)
	client.CloseIdleConnections()

	code, _, errs = command("metrics", "--listen", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics"))
	require.Equal(t, 1, code)
	require.Contains(t, errs, "address already in use")
	cancel()
	require.NoError(t, <-served)
	require.NoError(t, w.Close())
	goleak.VerifyNone(t)
}

// unread is a client that does not read.
type unread struct {
	*httptest.ResponseRecorder
	writes, reads chan struct{}
}

func (u *unread) Write(b []byte) (int, error) {
	close(u.writes)
	<-u.reads
	return u.ResponseRecorder.Write(b)
}

// TestScrapeBesideOthers: a client that does not read its answer holds up no other one, and for who
// is gone nobody is asked.
func TestScrapeBesideOthers(t *testing.T) {
	x, slow := &exporter{}, &unread{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	var served sync.WaitGroup
	defer served.Wait()
	defer close(slow.reads)
	served.Go(func() { x.ServeHTTP(slow, httptest.NewRequest("GET", "/metrics", nil)) })
	<-slow.writes
	quick := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		x.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		quick <- w.Code
	}()
	select {
	case code := <-quick:
		require.Equal(t, http.StatusOK, code)
	case <-time.After(testlevel.Patience(time.Minute)):
		t.Fatal("the second client waits for the first one")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, x.scrape(ctx, nil), context.Canceled)
}

// TestMeasuredSilent: of a rank that does not answer nothing is told but that.
func TestMeasuredSilent(t *testing.T) {
	n := doors.Name{UID: os.Geteuid(), Job: "silent", Rank: 3, PID: os.Getpid()}
	list := doors.Metrics(t.Context(), []doors.Name{n})
	require.NotEmpty(t, list[0].Silent)
	var b bytes.Buffer
	require.NoError(t, meters.Write(&b, measured(list)))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Equal(t, `tagmatch_up{job="silent",rank="3",program=""} 0`, lines[len(lines)-1])
	require.Len(t, slices.DeleteFunc(lines, func(s string) bool { return strings.HasPrefix(s, "#") }), 1)
}

// steered has play start two ranks that move bytes (see moves). It returns the line by which a test
// tells them to, and what they say; the name of their job is said.
func steered(t *testing.T, play func()) (net.Conn, *bufio.Scanner) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	t.Setenv(envMoves, l.Addr().String())
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	go play()
	conn, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	lines := bufio.NewScanner(conn)
	require.True(t, lines.Scan())
	return conn, lines
}

// TestScrapeJob scrapes a job that moves bytes: what it says it has moved between two scrapes the
// counters have moved by, within 2 %. So are rates.
func TestScrapeJob(t *testing.T) {
	ended := make(chan string)
	conn, lines := steered(t, func() {
		_, out, errs := command("run", "-n", "2", os.Args[0])
		ended <- out + errs
	})
	job := lines.Text()
	var out strings.Builder // of the last scrape
	scrape := func(family string, rank int) (sum float64) {
		out.Reset()
		require.NoError(t, writeMetrics(t.Context(), &out))
		for line := range strings.Lines(out.String()) {
			if value, ok := strings.CutPrefix(line, fmt.Sprintf(`%s{job="%s",rank="%d",`, family, job, rank)); ok {
				n, err := strconv.ParseFloat(strings.TrimSpace(value[strings.IndexByte(value, ' '):]), 64)
				require.NoError(t, err)
				sum += n
			}
		}
		return sum
	}
	const sent, received = "tagmatch_sent_bytes_total", "tagmatch_received_bytes_total"
	for range 2 {
		before := [2]float64{scrape(sent, 0), scrape(received, 1)}
		fmt.Fprintln(conn, "begin")
		require.Eventually(t, func() bool { return scrape(received, 1) > before[1]+16<<20 }, testlevel.Patience(time.Minute), time.Millisecond)
		fmt.Fprintln(conn, "end")
		require.True(t, lines.Scan())
		moved, err := strconv.ParseFloat(lines.Text(), 64)
		require.NoError(t, err)
		require.InEpsilon(t, moved, scrape(sent, 0)-before[0], 0.02)
		require.InEpsilon(t, moved, scrape(received, 1)-before[1], 0.02)
	}
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	require.Empty(t, <-ended)
}
