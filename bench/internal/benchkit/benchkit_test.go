package benchkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

// parsed are the faults of a test's arguments.
func parsed(t Test, args string) error {
	return parse("test", "", t, strings.Fields(args), io.Discard)
}

func TestSizes(t *testing.T) {
	b := NewBandwidth()
	require.NoError(t, parsed(b, "-sizes 0,8,2k,3M -window 7 -json"))
	require.Equal(t, Sizes{0, 8, 2048, 3 << 20}, b.Sizes)
	require.Equal(t, "0,8,2048,3145728", b.Sizes.String())
	require.Equal(t, 7, b.Window)
	for _, text := range []string{"", "8,", "-1", "k", "2g", "4096m"} {
		require.ErrorContains(t, (&Sizes{}).Set(text), "is not a size", text)
	}
	err := parsed(NewBandwidth(), "-iters -1 -window 0 -gomaxprocs -1")
	for _, part := range []string{"-iters is -1", "-window is 0", "-gomaxprocs is -1"} {
		require.ErrorContains(t, err, part)
	}
}

func TestFaultsOfFlags(t *testing.T) {
	for args, text := range map[string]string{
		"-device foo":        `-device is "foo": this build has auto, shm, tcp`,
		"-device shm,bar":    `-device is "bar": this build has auto, shm, tcp`,
		"-transport foo":     `-transport is "foo": this build has auto, rc, tmsrq`,
		"-max-tags 65537":    "-max-tags is 65537: give 0 to 65536, or -1 for the default",
		"-gomaxprocs 1025":   "-gomaxprocs is 1025: give 1 to 1024, or 0 to leave it",
		"-window 16385":      "-window is 16385: give 1 to 16384",
		"-iters -1":          "-iters is -1: give 1 or more, or 0 for as many as the size calls for",
		"-goroutines 100000": "-goroutines has 100000: give 1 to 65536",
		"-many -sliding":     "-many and -sliding exclude each other",
		"-json 8":            `unexpected argument "8"`,
	} {
		require.EqualError(t, parsed(NewRate(), args), text)
	}
	require.NoError(t, parsed(NewRate(), "-max-tags 65536 -offload-min 1099511627776"), "p2p allows less than the flags")
	t.Setenv("TAGMATCH_DEVICE", "foo")
	require.ErrorContains(t, parsed(NewRate(), ""), `TAGMATCH_DEVICE is "foo": this build has auto, shm, tcp`)
}

// TestDamageIsSeen runs loops whose messages arrive damaged or not at all.
func TestDamageIsSeen(t *testing.T) {
	rounds := func(received func(l *loop)) func(s *Session) error {
		return func(s *Session) error {
			_, err := s.rounds("lat", newLoop(s, 21, 10, false), 2, func(_ *p2p.World, l *loop) error {
				for range l.rounds {
					received(l)
				}
				return nil
			})
			return err
		}
	}
	stream := func(received func(i int, buf []byte)) func(s *Session) error {
		return func(s *Session) error {
			_, err := (&streamed{Window: 3}).measure(s, "bw", 21, 10, 1, func(p *part, _ *p2p.World) error {
				for i := range p.n {
					received(i, p.buf(i))
				}
				return nil
			})
			return err
		}
	}
	damaged := func(message int) func(s *Session) error {
		return stream(func(i int, buf []byte) {
			if Fill(buf, i); i == message {
				buf[20]++
			}
		})
	}
	p2ptest.Run(t, 1, func(w *p2p.World) {
		for text, run := range map[string]func(s *Session) error{
			"round 1: a message of 21 bytes arrived damaged: byte 0 is ": rounds(func(*loop) {}),
			"round 1: a message of 21 bytes arrived damaged: byte 20 is ": rounds(func(l *loop) {
				copy(l.in, l.out[:20])
			}),
			"message 0 of 21 bytes arrived damaged: byte 0 is ":  stream(func(int, []byte) {}),
			"message 0 of 21 bytes arrived damaged: byte 20 is ": damaged(0),
			"message 3 of 21 bytes arrived damaged: byte 20 is ": damaged(3), // at the end
		} {
			require.ErrorContains(t, run(&Session{World: w}), text)
		}
		s := &Session{World: w}
		r, err := s.rounds("lat", newLoop(s, 21, 10, true), 2, func(_ *p2p.World, l *loop) error {
			for range l.rounds {
				copy(l.in, l.out)
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, 10, r.Iters)
	})
}

// TestOverlapChecked: with -check a message that arrives damaged in any round is seen.
func TestOverlapChecked(t *testing.T) {
	for _, check := range []bool{false, true} {
		p2ptest.Run(t, 2, func(w *p2p.World) {
			s := &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0}
			o := newOverlap(s, 21, check)
			require.NoError(t, o.verified())
			_, err := o.round(true, 1)
			require.NoError(t, err)
			if !s.First {
				o.buf[20]++
			}
			if _, err = o.round(true, 1); s.First && check {
				require.ErrorContains(t, err, "arrived damaged: byte 20 is ")
			} else {
				require.NoError(t, err)
			}
		})
	}
}

// TestOwnFlags: a test has its own flags and no others.
func TestOwnFlags(t *testing.T) {
	a := NewAlltoall()
	require.NoError(t, parsed(a, "-n 3 -check"))
	require.Equal(t, [2]any{3, true}, [2]any{a.N, a.Check})
	for _, n := range []string{"1", "5000"} {
		require.EqualError(t, parsed(NewLatency(), "-n "+n), "-n is "+n+": give 2 to 4096 ranks")
	}
	require.ErrorContains(t, parsed(NewIdle(), "-check"), "flag provided but not defined: -check")
	require.ErrorContains(t, parsed(NewBandwidth(), "-n 3"), "flag provided but not defined: -n")
	require.ErrorContains(t, parsed(NewThreads(), "-window 3"), "flag provided but not defined: -window")
}

// TestAsyncFlag: only a flag that was given overrides the environment, here and in jobs of a table.
func TestAsyncFlag(t *testing.T) {
	for arg, want := range map[string]p2p.AsyncMode{"-json": p2p.AsyncDefault, "-async": p2p.AsyncOn, "-async=true": p2p.AsyncOn, "-async=0": p2p.AsyncOff} {
		overlap := NewOverlap()
		require.NoError(t, parsed(overlap, arg))
		require.Equal(t, want, overlap.Config().Async, arg)
		jobs := overlap.Jobs()
		require.Len(t, jobs, 8)
		for _, job := range jobs {
			line := NewOverlap()
			require.NoError(t, parsed(line, arg+" "+strings.Join(job.Args, " ")))
			wantLine := want
			if want == p2p.AsyncDefault {
				wantLine = map[string]p2p.AsyncMode{"rc": p2p.AsyncOff, "tmsrq": p2p.AsyncOn}[line.transport]
			}
			require.Equal(t, wantLine, line.Config().Async, "%s %v", arg, job.Args)
		}
	}
	require.ErrorContains(t, parsed(NewOverlap(), "-async=maybe"), `invalid boolean value "maybe" for -async: give true or false`)
}

func TestJobsOfCrowds(t *testing.T) {
	l, a := NewLatency(), NewAlltoall()
	require.Empty(t, l.Jobs())
	l.N, a.N = 64, 64
	for _, jobs := range [][]Job{l.Jobs(), a.Jobs()} {
		require.Equal(t, []Job{{Ranks: 2, Args: []string{"-n", "2"}}, {Ranks: 64, Args: []string{"-n", "64"}}}, jobs)
	}
}

func TestResultLine(t *testing.T) {
	var out bytes.Buffer
	p := reporter{Table: Table{Out: &out, JSON: true}}
	require.NoError(t, p.print(&Result{Test: "bw", Device: "shm", Transport: "rc", Size: 8, Iters: 10, AvgUs: 0.5}))
	require.Equal(t, `{"test":"bw","device":"shm","transport":"rc","size":8,"iters":10,"avg_us":0.5}`+"\n", out.String())
}

// full takes so many writes.
type full int

func (f *full) Write(p []byte) (int, error) {
	if *f--; *f < 0 {
		return 0, syscall.ENOSPC
	}
	return len(p), nil
}

// TestLostLines: each line that cannot be written is an error.
func TestLostLines(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		lines := map[bool]int{false: 3, true: 1}[asJSON]
		for room := range lines + 1 {
			out := full(room)
			p := reporter{Table: Table{Out: &out, JSON: asJSON}}
			err := p.print(&Result{Test: "lat"})
			require.Equal(t, room < lines, errors.Is(err, syscall.ENOSPC), err)
		}
	}
}

func TestMeasuring(t *testing.T) {
	for _, check := range []bool{false, true} {
		var out bytes.Buffer
		verified := Verified{Check: check}
		p2ptest.Run(t, 2, func(w *p2p.World) {
			s := &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0, report: &reporter{Table: Table{Out: &out, JSON: true}}}
			stream := streamed{Verified: verified, Window: 4}
			sliding, many := stream, stream
			sliding.Sliding, many.Many = true, true
			one := pairs{Counts{1}}
			for _, test := range []Test{&Latency{Verified: verified}, &Bandwidth{stream}, &Bandwidth{sliding}, &Rate{stream, one}, &Rate{many, one}, &Overlap{verified}} {
				for _, size := range []int{0, 9, 100 << 10} {
					require.NoError(t, test.Run(s, size, 10))
				}
			}
		})
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 18)
		var r Result
		require.NoError(t, json.Unmarshal([]byte(lines[2]), &r))
		require.Equal(t, [4]any{"lat", "loop", 100 << 10, 10}, [4]any{r.Test, r.Device, r.Size, r.Iters})
		require.Positive(t, r.AvgUs)
		require.Positive(t, r.MidUs)
		require.Positive(t, r.P99Us)
	}
}

// TestAnswers: the receiver answers each window, or once where the window slides, by 4 bytes, and
// the sender waits for all answers. The other rank is played by hand.
func TestAnswers(t *testing.T) {
	ctx := t.Context()
	for _, sliding := range []bool{false, true} {
		answers := 3
		if sliding {
			answers = 1
		}
		p2ptest.Run(t, 2, func(w *p2p.World) {
			s := &Session{World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0}
			p := (&streamed{Window: 3, Sliding: sliding}).part(s, 8, 0, 1)
			for real := range 2 {
				p.begin(7, false)
				switch {
				case w.Rank() == real:
					require.NoError(t, p.move(w))
				case real == 1:
					for range p.n {
						require.NoError(t, w.Send(ctx, 1, pairTag(data, 0), make([]byte, 8)))
					}
				default:
					for range answers {
						require.NoError(t, w.Send(ctx, 0, pairTag(done, 0), make([]byte, 4)))
					}
					for range p.n {
						_, err := w.Recv(ctx, pairTag(data, 0), p2p.MaskExact, make([]byte, 8))
						require.NoError(t, err)
					}
				}
				require.NoError(t, s.sync())
				for range answers * real * s.Peer { // rank 0, of a receiver that is real
					got, err := w.Recv(ctx, pairTag(done, 0), p2p.MaskExact, make([]byte, 8))
					require.NoError(t, err)
					require.EqualValues(t, 4, got.Len)
				}
				_, found, err := w.Iprobe(pairTag(done, 0), p2p.MaskExact)
				require.NoError(t, err)
				require.False(t, found)
			}
		})
	}
}

// TestCold has every message of a stream in a buffer of its own, beside each other in pages.
func TestCold(t *testing.T) {
	seen := map[*byte]bool{}
	p := (&streamed{Window: 3, Cold: true}).part(&Session{}, 21, 0, 1)
	const bufs = coldBytes / 4096
	for i := range 2 * bufs {
		buf := p.buf(i)
		if len(buf) != 21 || seen[&buf[0]] != (i >= bufs) {
			t.Fatalf("buffer %d has %d bytes; used before: %v", i, len(buf), seen[&buf[0]])
		}
		seen[&buf[0]] = true
	}
}

func TestFloodJudged(t *testing.T) {
	r := Flood{Limit: 1 << 20, Peak: 1<<20 + FloodConstant}
	r.judge()
	require.NoError(t, r.verdict())
	r.Peak++
	r.judge()
	require.EqualError(t, r.verdict(), "the flooded rank had 68157441 bytes in memory, its bound is 68157440 bytes")
	r = Flood{While: WhileRecv, Limit: 1 << 20, EndPeak: 2 * FloodConstant}
	r.judge()
	require.Error(t, r.verdict())
	var out bytes.Buffer
	p := reporter{Table: Table{Out: &out}}
	require.NoError(t, p.print(&Result{Test: "flood", Flood: &r}))
	require.Regexp(t, "bound MiB.*\n.* 65 ", out.String())
}

func TestMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is measured by Linux's /proc")
	}
	held := bytes.Repeat([]byte{1}, 32<<20)
	peak, err := peakMemory()
	require.NoError(t, err)
	require.Greater(t, peak, int64(len(held)))
	now, err := Resident()
	require.NoError(t, err)
	require.Greater(t, now, int64(len(held)))
	runtime.KeepAlive(held)
}
