package diagnose

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/inspect"
)

// TestLeftOut: states of another job, version or size, or without a rank of the job, are no states
// of it. Without the culprit's state nothing is certain of a deadlock.
func TestLeftOut(t *testing.T) {
	spoil := map[string]func(s *inspect.State){
		"job":      func(s *inspect.State) { s.Job = "another" },
		"version":  func(s *inspect.State) { s.Version++ },
		"size":     func(s *inspect.State) { s.Size++ },
		"rank":     func(s *inspect.State) { s.Rank = s.Size },
		"negative": func(s *inspect.State) { s.Rank = -1 },
		"double":   func(s *inspect.State) { s.Rank = 0 },
	}
	for name, f := range spoil {
		t.Run(name, func(t *testing.T) {
			s := broken[0].build()
			f(&s.now[1])
			for _, v := range s.diagnose() {
				require.False(t, v.Certain && v.Class.Deadlock(), "%+v", v)
				require.Equal(t, NoAnswer, v.Class)
				require.Equal(t, []int{1}, v.Ranks)
			}
		})
	}
	require.Empty(t, Diagnose(inspect.Look{}, inspect.Look{}))
}

// TestDoubt: each thing that may let a rank go on takes the certainty of a mismatch.
func TestDoubt(t *testing.T) {
	for name, change := range map[string]func(s *scene){
		"moved":      func(s *scene) { s.now[1].Moved++ },
		"restarted":  func(s *scene) { s.now[1].PID++ },
		"deadline":   func(s *scene) { s.now[1].Timed = 1 },
		"partial":    func(s *scene) { s.now[1].Partial = true },
		"sender cut": func(s *scene) { s.now[0].Partial = true },
		"returning":  func(s *scene) { s.now[1].Waiting = 0 },
		"goroutine":  func(s *scene) { s.now[1].Outside = []inspect.Place{{At: "main.go:5", N: 1, State: "select"}} },
		"elsewhere":  func(s *scene) { s.now[0].Outside = []inspect.Place{{At: "main.go:5", N: 1, State: "running"}} },
		"once":       func(s *scene) { s.before = slices.Delete(s.before, 1, 2) },
		"before":     func(s *scene) { s.before[1].Outside = []inspect.Place{{At: "main.go:5", N: 1, State: "runnable"}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := broken[0].build()
			s.before = slices.Clone(s.now)
			change(s)
			v := s.diagnose()[0]
			require.Equal(t, Mismatch, v.Class)
			require.False(t, v.Certain)
			require.NotEmpty(t, v.Doubt)
		})
	}
	s := broken[0].build() // what can only be woken by another goroutine is no doubt
	s.now[1].Outside = []inspect.Place{{At: "main.go:5", N: 1, State: "sync.WaitGroup.Wait"}}
	require.True(t, s.diagnose()[0].Certain)
}

// TestUnderWay: what is under way between two ranks lets them go on, and nothing is said.
func TestUnderWay(t *testing.T) {
	for name, change := range map[string]func(s *scene){
		"message": func(s *scene) { s.now[2].Peers[1].Sent++ },
		"credit":  func(s *scene) { s.now[1].Peers[0].Granted++ },
		"want":    func(s *scene) { s.now[1].Peers[0].Asked++ },
		"held":    func(s *scene) { s.now[1].Peers[0].Seen = 1 },
		"receive": func(s *scene) {
			s.now[1].Receives = append(s.now[1].Receives, inspect.Receive{Key: world(7), Peer: 0, N: 1})
		},
		"its send": func(s *scene) { s.now[2].Sends = []inspect.Send{send(world(1), 1, 1, inspect.StageRoom)} },
		"other":    func(s *scene) { s.now[3].Peers[1].Sent++ },
		"matched":  func(s *scene) { s.now[1].Receives[0].Where = inspect.WhereRead },
		"lost":     func(s *scene) { s.now[1].Failed = map[int]string{2: "gone"} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			s.in(0, "Comm.Send", "main.go:1").Sends = []inspect.Send{send(world(7), 1, 16<<10, inspect.StageHeld)}
			s.in(1, "Comm.Recv", "main.go:2").Receives = []inspect.Receive{receive(world(1), 2, 64)}
			s.in(2, "Comm.Recv", "main.go:3").Receives = []inspect.Receive{receive(world(2), 0, 64)}
			s.now[0].Peers[1].Episode, s.now[1].Peers[0].Seen = 3, 3
			require.True(t, s.diagnose()[0].Certain)
			s.before = nil
			change(s)
			require.Empty(t, s.diagnose())
		})
	}
}

// TestLateInCollective: of those that a collective call waits for one is late and one is stuck with
// another: the deadlock does not hide behind the late rank.
func TestLateInCollective(t *testing.T) {
	s := newScene()
	meet(s.in(0, "Comm.Barrier", "main.go:1"), "Barrier", 1, true)
	meet(s.in(3, "Comm.Barrier", "main.go:1"), "Barrier", 1, true)
	s.in(1, "Comm.Recv", "main.go:2").Receives = []inspect.Receive{receive(world(7), 0, 64)}
	s.outside(2, "main.go:3", "running")
	verdicts := s.diagnose()
	require.Equal(t, Collective, verdicts[0].Class)
	require.Equal(t, []int{1, 0, 3}, verdicts[0].Ranks)
	require.True(t, verdicts[0].Certain)
}

// TestHeldWithOthers: a rank that goes on may free memory of another one, whatever that does.
func TestHeldWithOthers(t *testing.T) {
	s := newScene()
	s.in(0, "Comm.Send", "main.go:1").Sends = []inspect.Send{send(world(7), 1, 16<<10, inspect.StageHeld)}
	s.in(1, "Comm.Recv", "main.go:2").Receives = []inspect.Receive{receive(world(1), 0, 64)}
	s.now[0].Peers[1].Episode, s.now[1].Peers[0].Seen = 1, 1
	require.True(t, s.diagnose()[0].Certain)
	s.before = nil
	s.outside(3, "main.go:9", "running")
	for _, v := range s.diagnose() {
		require.False(t, v.Certain && v.Class.Deadlock(), "%+v", v)
	}
}

// TestHeldByLost: who waits for a rank that is gone hears of the loss, and goes on.
func TestHeldByLost(t *testing.T) {
	s := newScene()
	s.in(0, "Comm.Send", "main.go:1").Sends = []inspect.Send{send(world(7), 1, 16<<10, inspect.StageHeld)}
	s.in(1, "Comm.Recv", "main.go:2").Receives = []inspect.Receive{receive(world(1), 2, 64)}
	s.now[0].Peers[1].Episode, s.now[1].Peers[0].Seen = 3, 3
	s.away(2, inspect.WhyGone)
	verdicts := s.diagnose()
	require.Len(t, verdicts, 2)
	require.Equal(t, Lost, verdicts[0].Class)
	require.Equal(t, HeldUp, verdicts[1].Class)
	require.False(t, verdicts[1].Certain)
}

// TestDiffering: ranks in different collective calls have gone wrong, whatever they wait for.
func TestDiffering(t *testing.T) {
	s := newScene()
	for r := range sceneRanks {
		meet(s.in(r, "Comm.Dup", "main.go:1"), "Dup", 2, true)
	}
	s.now[2].Meetings = nil
	meet(s.in(2, "Comm.Barrier", "main.go:9"), "Barrier", 2, true)
	v := s.diagnose()[0]
	require.Equal(t, Collective, v.Class)
	require.Equal(t, 2, v.Ranks[0])
	require.True(t, v.Certain)
	golden(t, "differing", s.diagnose())
}

// TestLossInCollective: a rank that has lost another one leaves its collective calls.
func TestLossInCollective(t *testing.T) {
	s := newScene()
	for _, r := range []int{0, 2, 3} {
		meet(s.in(r, "Comm.Dup", "main.go:1"), "Dup", 1, true)
		s.now[r].Failed = map[int]string{1: "gone"}
	}
	s.in(1, "Comm.Recv", "main.go:2").Receives = []inspect.Receive{receive(world(7), 0, 64)}
	require.Empty(t, s.diagnose())
}

// FuzzDiagnose reads two looks and diagnoses them: whatever ranks say, it neither panics nor goes
// on for long.
func FuzzDiagnose(f *testing.F) {
	for _, b := range broken {
		s := b.build()
		l := inspect.Look{States: s.now, Absent: s.absent}
		text, err := json.Marshal([]inspect.Look{l, l})
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var looks []inspect.Look
		if json.Unmarshal(text, &looks) != nil || len(looks) == 0 {
			return
		}
		verdicts := Diagnose(looks[0], looks[len(looks)-1])
		require.NoError(t, Write(io.Discard, verdicts, 80))
	})
}

// TestNonsense has ranks say anything, with numbers and names that collide.
func TestNonsense(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		l := inspect.Look{}
		for r := range 1 + rnd.IntN(6) {
			l.States = append(l.States, nonsense(rnd, r))
		}
		for range rnd.IntN(3) {
			l.Absent = append(l.Absent, inspect.Absent{Rank: rnd.IntN(9) - 2, Why: []string{inspect.WhyGone, inspect.WhyStopped, "?"}[rnd.IntN(3)]})
		}
		before := l
		if rnd.IntN(3) == 0 {
			before = inspect.Look{}
		}
		require.NotPanics(t, func() {
			require.NoError(t, Write(io.Discard, Diagnose(l, before), 80))
		}, "seed %d", seed)
	}
}

func nonsense(rnd *rand.Rand, r int) inspect.State {
	n := func() int { return rnd.IntN(9) - 2 }
	key := func() inspect.Key {
		return inspect.Key{Comm: []string{inspect.CommWorld, inspect.CommRaw, inspect.CommLibrary, "Comm 3", ""}[rnd.IntN(5)],
			Tag: rnd.Uint64() >> rnd.IntN(64), Mask: uint64(rnd.IntN(3)), Any: rnd.IntN(4) == 0}
	}
	s := inspect.State{Version: inspect.Version, Job: "job", Rank: r, Size: 6, Waiting: n(), Moved: uint64(rnd.IntN(2)),
		Phase: []string{inspect.PhaseRunning, inspect.PhaseShutdown, inspect.PhaseClosed, ""}[rnd.IntN(4)], Leaked: rnd.Uint64N(20_000)}
	if rnd.IntN(8) == 0 {
		s.Size = 1 << 30
	}
	for range rnd.IntN(4) {
		s.Receives = append(s.Receives, inspect.Receive{Key: key(), Peer: n(), N: n(), Awaited: n(), From: []int{n(), n()}[:rnd.IntN(3)]})
		s.Sends = append(s.Sends, inspect.Send{Key: key(), Peer: n(), N: n(), Awaited: n(),
			Stage: []string{inspect.StageRoom, inspect.StageHeld, inspect.StageRequested, inspect.StageWithdrawn}[rnd.IntN(4)]})
		s.Messages = append(s.Messages, inspect.Message{Key: key(), Peer: n(), N: n(), Eager: rnd.IntN(2) == 0})
		s.Peers = append(s.Peers, inspect.Peer{Rank: n(), Episode: rnd.Uint32N(2), Seen: rnd.Uint32N(2), Sent: uint64(rnd.IntN(2)), Came: uint64(rnd.IntN(2))})
		s.Meetings = append(s.Meetings, inspect.Meeting{Name: []string{"Dup", "Barrier", "Shutdown", "coll.Bcast", ""}[rnd.IntN(5)],
			Number: uint64(rnd.IntN(3)), Waiting: rnd.IntN(2) == 0, Members: []int{n(), n(), n()}[:rnd.IntN(4)]})
		s.Calls = append(s.Calls, inspect.Call{Name: "Comm.Recv\x1b[2J", Place: inspect.Place{At: "x\ny", N: n()}})
		s.Outside = append(s.Outside, inspect.Place{N: n(), State: "sleep"})
	}
	if rnd.IntN(3) == 0 {
		s.Failed = map[int]string{n(): "", n(): "gone"}
		s.Unacked = map[string][]int{"": {n()}}
	}
	return s
}

// TestTerminal: what ranks say cannot command a terminal, nor break the lines.
func TestTerminal(t *testing.T) {
	s := broken[0].build()
	s.now[1].Calls[0].At = "main.go:1\x1b[2J\n main.x"
	var out printed
	require.NoError(t, Write(&out, s.diagnose(), 80))
	require.NotContains(t, string(out), "\x1b")
}

type printed []byte

func (p *printed) Write(b []byte) (int, error) { *p = append(*p, b...); return len(b), nil }

// crowd is a job of n ranks that hang: a ring of receives, with all others in a barrier.
func crowd(n int, dense bool) inspect.Look {
	l := inspect.Look{}
	for r := range n {
		s := inspect.State{Version: inspect.Version, Job: "job", Rank: r, Size: n, Phase: inspect.PhaseRunning, Waiting: 1,
			Calls: []inspect.Call{inside("Comm.Recv", "main.go:1 main.main")}}
		switch {
		case dense:
			s.Receives = []inspect.Receive{receive(world(7), inspect.Any, 64)}
		case r%2 == 0:
			s.Receives = []inspect.Receive{receive(world(7), (r+2)%(n+n%2), 64)}
		default:
			meet(&s, "Barrier", 1, true)
		}
		for p := range n {
			if dense || p == (r+1)%n || p == (r+n-1)%n {
				s.Peers = append(s.Peers, inspect.Peer{Rank: p, Sent: 100, Came: 100})
			}
		}
		l.States = append(l.States, s)
	}
	return l
}

func BenchmarkDiagnose(b *testing.B) {
	for _, dense := range []bool{false, true} {
		for _, n := range []int{64, 256, 1024} {
			b.Run(fmt.Sprintf("dense=%v/%d", dense, n), func(b *testing.B) {
				l := crowd(n, dense)
				for b.Loop() {
					if v := Diagnose(l, l); len(v) != 1 || !v[0].Certain {
						b.Fatalf("%+v", v)
					}
				}
			})
		}
	}
}
