package pmi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// manager is a process manager of n ranks. It answers as Hydra 4.0.2 does or, strict, as Slurm
// 22.05: that takes what one read of 1024 bytes returns for one whole command.
type manager struct {
	n       int
	strict  bool
	odd     bool // tokens in another order, more of them, and PMI-2 lengths padded on the right
	mapping string

	mu      sync.Mutex
	cond    *sync.Cond
	put     map[string]string // not visible yet
	seen    map[string]string
	in      int // ranks in the barrier
	round   int
	aborted []string
	ended   int // ranks that finalized
	over    bool
}

func newManager(n int) *manager {
	m := &manager{n: n, mapping: "(vector,(0,1,1))", put: map[string]string{}, seen: map[string]string{}}
	m.cond = sync.NewCond(&m.mu)
	return m
}

// start serves a rank and returns its environment.
func (m *manager) start(t *testing.T, rank int, jobID string) func(string) string {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fds[1]), "manager")
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.serve(conn, rank)
	}()
	t.Cleanup(func() {
		m.mu.Lock()
		m.over = true
		m.cond.Broadcast()
		m.mu.Unlock()
		_ = conn.Close()
		<-done
	})
	env := map[string]string{"PMI_FD": strconv.Itoa(fds[0]), "PMI_RANK": strconv.Itoa(rank), "PMI_SIZE": strconv.Itoa(m.n), "PMI_JOBID": jobID}
	return func(name string) string { return env[name] }
}

func (m *manager) serve(conn net.Conn, rank int) {
	s := &session{m: m, conn: conn, r: bufio.NewReader(conn), rank: rank}
	for {
		cmd, ok := s.read()
		if !ok || !s.answer(cmd) {
			return
		}
	}
}

type session struct {
	m    *manager
	conn net.Conn
	r    *bufio.Reader
	rank int
	v2   bool
}

func (s *session) read() (fields, bool) {
	if s.v2 {
		body, err := (&channel{r: s.r}).message()
		return parse(body, ";"), err == nil
	}
	if !s.m.strict {
		line, err := s.r.ReadString('\n')
		return parse(strings.TrimSuffix(line, "\n"), " "), err == nil
	}
	var b [1024]byte
	n, err := s.conn.Read(b[:])
	if err != nil {
		return nil, false
	}
	line := string(b[:n])
	if strings.Count(line, "\n") != 1 || !strings.HasSuffix(line, "\n") {
		return nil, false // Slurm loses or mistakes what comes so
	}
	return parse(strings.TrimSuffix(line, "\n"), " "), true
}

// say sends a reply of pairs.
func (s *session) say(cmd string, pairs ...string) bool {
	all := append([]string{"cmd=" + cmd}, pairs...)
	if s.m.odd {
		all = append([]string{"tag=0", "x=a=b"}, append(pairs, "cmd="+cmd)...)
	}
	text := strings.Join(all, " ") + "\n"
	if s.v2 {
		text = strings.Join(all, ";") + ";"
		head := fmt.Sprintf("%6d", len(text))
		if s.m.odd {
			head = fmt.Sprintf("%-6d", len(text))
		}
		text = head + text
	}
	_, err := io.WriteString(s.conn, text)
	return err == nil
}

func (s *session) answer(f fields) bool {
	m := s.m
	switch f["cmd"] {
	case "init":
		v := f["pmi_version"]
		ok := s.say("response_to_init", "pmi_version="+v, "pmi_subversion=0", "rc=0")
		s.v2 = v == "2"
		return ok
	case "initack":
		return s.say("initack") && s.say("set", "rank="+f["pmiid"]) && s.say("set", "debug=0") && s.say("set", "size="+strconv.Itoa(m.n))
	case "get_maxes":
		return s.say("maxes", "kvsname_max=256", "keylen_max=64", "vallen_max=1024")
	case "get_my_kvsname":
		return s.say("my_kvsname", "kvsname=kvs_1")
	case "fullinit":
		return s.say("fullinit-response", "rank="+f["pmirank"], "size="+strconv.Itoa(m.n), "rc=0")
	case "job-getid":
		return s.say("job-getid-response", "jobid=3.0", "rc=0")
	case "info-getjobattr":
		return s.say("info-getjobattr-response", "found=TRUE", "value="+m.mapping, "rc=0")
	case "put", "kvs-put":
		m.mu.Lock()
		m.put[f["key"]] = f["value"][:min(len(f["value"]), 1023)] // cut without a word
		m.mu.Unlock()
		return s.say(map[bool]string{true: "kvs-put-response", false: "put_result"}[s.v2], "rc=0", "msg=success")
	case "barrier_in", "kvs-fence":
		m.barrier()
		return s.say(map[bool]string{true: "kvs-fence-response", false: "barrier_out"}[s.v2], "rc=0")
	case "get":
		return s.get(f["key"])
	case "kvs-get":
		if v, ok := m.value(f["key"]); ok {
			return s.say("kvs-get-response", "found=TRUE", "value="+v, "rc=0")
		}
		return s.say("kvs-get-response", "found=FALSE", "rc=0")
	case "abort":
		m.mu.Lock()
		m.aborted = append(m.aborted, fmt.Sprint(f))
		m.cond.Broadcast()
		m.mu.Unlock()
		return false
	case "finalize":
		m.mu.Lock()
		m.ended++
		m.mu.Unlock()
		return s.say(map[bool]string{true: "finalize-response", false: "finalize_ack"}[s.v2], "rc=0")
	}
	return false
}

// get answers a missing key with a bogus value, as Hydra does.
func (s *session) get(key string) bool {
	if key == "PMI_process_mapping" {
		return s.say("get_result", "rc=0", "msg=success", "value="+s.m.mapping)
	}
	if v, ok := s.m.value(key); ok {
		return s.say("get_result", "rc=0", "msg=success", "value="+v)
	}
	return s.say("get_result", "rc=-1", "msg=key_nosuch_not_found", "value=unknown")
}

func (m *manager) value(key string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.seen[key]
	return v, ok
}

// barrier makes what was put visible when the last rank has come.
func (m *manager) barrier() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.in++; m.in == m.n {
		m.in = 0
		m.round++
		for k, v := range m.put {
			m.seen[k] = v
		}
		m.cond.Broadcast()
		return
	}
	for round := m.round; round == m.round && !m.over; {
		m.cond.Wait()
	}
}

// open joins as a rank.
func open(t *testing.T, getenv func(string) string) *Client {
	t.Helper()
	p, err := Find(getenv)
	require.NoError(t, err)
	require.NotNil(t, p)
	c, err := p.Open(context.Background())
	require.NoError(t, err)
	return c
}
