package diagnose

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

var update = flag.Bool("update", false, "write the golden files")

// scene is two looks at a job in which nothing moves between them.
type scene struct {
	now, before []inspect.State
	absent      []inspect.Absent // from both looks
}

const sceneRanks = 4

// newScene has all ranks in Shutdown.
func newScene() *scene {
	s := &scene{}
	for r := range sceneRanks {
		st := inspect.State{Version: inspect.Version, Job: "job", Rank: r, Size: sceneRanks, Host: "a", PID: 100 + r,
			Program: "broken", Moved: 17, EagerLimit: 32 << 10, Started: time.Unix(1, 0), Phase: inspect.PhaseShutdown}
		st.Calls = []inspect.Call{inside("World.Shutdown", "main.go:49 main.main")}
		st.Waiting = 1
		for p := range sceneRanks {
			st.Peers = append(st.Peers, inspect.Peer{Rank: p, Connected: true, Allowed: 1000, Granted: 1000})
		}
		s.now = append(s.now, st)
	}
	return s
}

func inside(name, at string) inspect.Call {
	return inspect.Call{Name: name, Place: inspect.Place{At: at, N: 1, State: "select"}, Age: 12_300}
}

// in has a rank in a call instead of Shutdown.
func (s *scene) in(rank int, name, at string) *inspect.State {
	st := &s.now[rank]
	st.Phase, st.Calls = inspect.PhaseRunning, []inspect.Call{inside(name, at)}
	return st
}

// outside has a rank in no call.
func (s *scene) outside(rank int, at, state string) *inspect.State {
	st := &s.now[rank]
	st.Phase, st.Calls, st.Waiting = inspect.PhaseRunning, nil, 0
	st.Outside = []inspect.Place{{At: at, N: 1, State: state}}
	return st
}

// away takes a rank's state out: it does not answer.
func (s *scene) away(rank int, why string) {
	s.now = slices.DeleteFunc(s.now, func(st inspect.State) bool { return st.Rank == rank })
	s.absent = append(s.absent, inspect.Absent{Rank: rank, Host: "a", PID: 100 + rank, Why: why})
}

// came has a message that was sent, and came.
func (s *scene) came(from, to int, cost uint64) {
	s.now[from].Peers[to].Sent += cost
	s.now[to].Peers[from].Came += cost
}

func (s *scene) diagnose() []Verdict {
	if s.before == nil {
		s.before = s.now
	}
	return Diagnose(inspect.Look{States: s.now, Absent: s.absent}, inspect.Look{States: s.before, Absent: s.absent})
}

func world(tag uint64) inspect.Key { return inspect.Key{Comm: inspect.CommWorld, Tag: tag} }

func receive(key inspect.Key, peer int, bytes uint64) inspect.Receive {
	return inspect.Receive{Key: key, Peer: peer, Bytes: bytes, N: 1, Awaited: 1, Kind: "receive", Where: "software", Age: 12_300}
}

func send(key inspect.Key, peer int, bytes uint64, stage string) inspect.Send {
	return inspect.Send{Key: key, Peer: peer, Bytes: bytes, N: 1, Awaited: 1, Stage: stage, Age: 12_300}
}

func message(key inspect.Key, peer int, bytes uint64, eager bool) inspect.Message {
	return inspect.Message{Key: key, Peer: peer, Bytes: bytes, N: 1, Eager: eager, Age: 12_300}
}

// meet has a rank wait in a collective call, or know that it was in it.
func meet(st *inspect.State, name string, number uint64, waits bool) {
	comm := inspect.CommWorld
	if strings.HasPrefix(name, "coll.") {
		comm = "Comm 3"
	}
	st.Meetings = append(st.Meetings, inspect.Meeting{Name: name, Comm: comm, Number: number, Waiting: waits})
}

// broken is the programs of the issue, and what is to be said of each.
var broken = []struct {
	name    string
	build   func() *scene
	class   Class
	culprit int
	certain bool
}{
	{"tag", func() *scene {
		s := newScene()
		st := s.in(1, "Comm.Recv", "main.go:67 main.broken")
		st.Receives = []inspect.Receive{receive(world(9), 0, 64)}
		st.Messages = []inspect.Message{message(world(8), 0, 1, true)}
		s.came(0, 1, 129)
		return s
	}, Mismatch, 1, true},
	{"bigtag", func() *scene {
		s := newScene()
		s.in(0, "Comm.Send", "main.go:72 main.broken").Sends = []inspect.Send{send(world(8), 1, 1<<20, inspect.StageRequested)}
		st := s.in(1, "Comm.Recv", "main.go:74 main.broken")
		st.Receives = []inspect.Receive{receive(world(9), 0, 1<<20)}
		st.Messages = []inspect.Message{message(world(8), 0, 1<<20, false)}
		s.came(0, 1, 128)
		return s
	}, Mismatch, 1, true},
	{"source", func() *scene {
		s := newScene()
		st := s.in(1, "Comm.Recv", "main.go:81 main.broken")
		st.Receives = []inspect.Receive{receive(world(7), 0, 64)}
		st.Messages = []inspect.Message{message(world(7), 2, 1, true)}
		s.came(2, 1, 129)
		return s
	}, Mismatch, 1, true},
	{"comm", func() *scene {
		s := newScene()
		st := s.in(1, "Comm.Recv", "main.go:88 main.broken")
		st.Receives = []inspect.Receive{receive(inspect.Key{Comm: "Comm 3", Tag: 7}, 0, 64)}
		st.Messages = []inspect.Message{message(world(7), 0, 1, true)}
		s.came(0, 1, 129)
		return s
	}, Mismatch, 1, true},
	{"cycle", func() *scene {
		s := newScene()
		for r := range sceneRanks {
			s.in(r, "Comm.Recv", "main.go:85 main.broken").Receives = []inspect.Receive{receive(world(7), (r+3)%sceneRanks, 64)}
		}
		return s
	}, Cycle, 0, true},
	{"sendcycle", func() *scene {
		s := newScene()
		for r := range sceneRanks {
			s.in(r, "Comm.Send", "main.go:90 main.broken").Sends = []inspect.Send{send(world(7), (r+1)%sceneRanks, 1<<20, inspect.StageRequested)}
			s.now[r].Messages = []inspect.Message{message(world(7), (r+3)%sceneRanks, 1<<20, false)}
			s.came(r, (r+1)%sceneRanks, 128)
		}
		return s
	}, SendCycle, 0, true},
	{"ssendcycle", func() *scene {
		s := newScene()
		for r := range sceneRanks {
			s.in(r, "Comm.Ssend", "main.go:90 main.broken").Sends = []inspect.Send{send(world(7), (r+1)%sceneRanks, 64, inspect.StageRequested)}
			s.now[r].Messages = []inspect.Message{message(world(7), (r+3)%sceneRanks, 64, false)}
			s.came(r, (r+1)%sceneRanks, 128)
		}
		return s
	}, SmallCycle, 0, true},
	{"unacknowledged", func() *scene {
		s := newScene()
		for r := range sceneRanks - 1 {
			st := s.outside(r, "main.go:120 main.collect", "running")
			st.Failed = map[int]string{3: "its process has ended"}
			st.Unacked = map[string][]int{inspect.CommWorld: {3}}
		}
		s.away(3, inspect.WhyGone)
		return s
	}, Lost, 3, true},
	{"dup", func() *scene {
		s := newScene()
		for _, r := range []int{0, 2, 3} {
			meet(s.in(r, "Comm.Dup", "main.go:148 main.broken"), "Dup", 1, true)
		}
		s.in(1, "Comm.Recv", "main.go:151 main.broken").Receives = []inspect.Receive{receive(world(7), 0, 64)}
		return s
	}, Collective, 1, true},
	{"allreduce", func() *scene {
		s := newScene()
		for _, r := range []int{0, 2, 3} {
			st := s.in(r, "coll.AllReduce", "main.go:160 main.broken")
			meet(st, "coll.AllReduce", 5, true)
			from := map[int]int{0: 1, 2: 3, 3: 1}[r]
			st.Receives = []inspect.Receive{receive(inspect.Key{Comm: "Comm 3", Tag: 0x50001}, from, 8)}
		}
		meet(&s.now[1], "coll.AllReduce", 4, false)
		return s
	}, Collective, 1, true},
	{"spin", func() *scene {
		s := newScene()
		for _, r := range []int{0, 2, 3} {
			s.in(r, "Comm.Recv", "main.go:135 main.broken").Receives = []inspect.Receive{receive(world(7), 1, 64)}
		}
		s.outside(1, "main.go:130 main.broken", "running")
		return s
	}, Late, 1, true},
	{"slow", func() *scene {
		s := newScene()
		for _, r := range []int{0, 1, 3} {
			s.in(r, "Comm.Sendrecv", "main.go:103 main.broken").Receives = []inspect.Receive{receive(world(7), (r+3)%sceneRanks, 64)}
		}
		s.outside(2, "main.go:101 main.broken", "sleep")
		s.before = slices.Clone(s.now)
		for r := range s.now {
			s.now[r].Moved += 40
		}
		return s
	}, Late, 2, false},
	{"held", func() *scene {
		s := newScene()
		st := s.in(0, "Comm.Send", "main.go:121 main.broken")
		st.Sends = []inspect.Send{send(world(7), 1, 16<<10, inspect.StageHeld)}
		s.in(1, "Comm.Recv", "main.go:126 main.broken").Receives = []inspect.Receive{receive(world(1), 2, 64)}
		s.in(2, "Comm.Recv", "main.go:128 main.broken").Receives = []inspect.Receive{receive(world(2), 0, 64)}
		s.now[1].Messages = []inspect.Message{{Key: world(7), Peer: 0, Bytes: 16 << 10, N: 2000, Eager: true}}
		s.came(0, 1, 2000*(16<<10+128))
		st.Peers[1].HeldUp = 1
		st.Peers[1].Episode, s.now[1].Peers[0].Seen = 1, 1
		s.now[1].Peers[0].HoldsUp, s.now[1].Peers[0].Charged, s.now[1].Peers[0].Window = true, 2000*(16<<10+128), 32<<20
		return s
	}, HeldUp, 1, true},
	{"leak", func() *scene {
		s := newScene()
		s.now[0].Leaked = 100_000
		s.in(1, "Comm.Recv", "main.go:113 main.broken").Receives = []inspect.Receive{receive(world(7), 0, 64)}
		s.came(0, 1, 12_900_000)
		s.now[0].Peers[1].Sent += 129 // one is under way: rank 1 is not stuck
		return s
	}, Leak, 0, true},
	{"exit", func() *scene {
		s := newScene()
		for _, r := range []int{0, 2, 3} {
			s.in(r, "Comm.Recv", "main.go:142 main.broken").Receives = []inspect.Receive{receive(world(7), 1, 64)}
		}
		s.away(1, inspect.WhyGone)
		return s
	}, Lost, 1, true},
	{"stopped", func() *scene {
		s := newScene()
		for _, r := range []int{0, 1, 3} {
			s.in(r, "Comm.Recv", "main.go:142 main.broken").Receives = []inspect.Receive{receive(world(7), 2, 64)}
		}
		s.away(2, inspect.WhyStopped)
		return s
	}, NoAnswer, 2, true},
	{"stopped0", func() *scene {
		s := newScene()
		s.away(0, inspect.WhyStopped)
		return s
	}, NoAnswer, 0, true},
}

// TestBroken has the first verdict of each program name the culprit, and compares the text.
func TestBroken(t *testing.T) {
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			verdicts := b.build().diagnose()
			require.NotEmpty(t, verdicts)
			v := verdicts[0]
			require.Equal(t, b.class, v.Class, "%+v", verdicts)
			require.Equal(t, b.culprit, v.Ranks[0], "%+v", v)
			require.Equal(t, b.certain, v.Certain, "%+v", v)
			golden(t, b.name, verdicts)
		})
	}
}

func golden(t *testing.T, name string, verdicts []Verdict) {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, Write(&out, verdicts, 80))
	for _, line := range bytes.Split(out.Bytes(), []byte("\n")) {
		require.LessOrEqual(t, len(line), 80, "%s", line)
	}
	file := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "go test -update writes it")
	require.Equal(t, string(want), out.String())
}

// TestOneLook: without a look before nothing is certain about who waits for whom.
func TestOneLook(t *testing.T) {
	for _, b := range broken {
		s := b.build()
		verdicts := Diagnose(inspect.Look{States: s.now, Absent: s.absent}, inspect.Look{})
		for _, v := range verdicts {
			require.False(t, v.Certain && (v.Class.Deadlock() || v.Class == Late), "%s: %+v", b.name, v)
			require.True(t, v.Certain || v.Doubt != "", "%s: %+v", b.name, v)
		}
	}
}
