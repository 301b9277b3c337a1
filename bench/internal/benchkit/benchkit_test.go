package benchkit

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

func TestSizes(t *testing.T) {
	f := Flags{Window: 64}
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	f.Register(fs)
	require.NoError(t, fs.Parse([]string{"-sizes", "0,8,2k,3M", "-window", "7", "-json"}))
	require.Equal(t, Sizes{0, 8, 2048, 3 << 20}, f.Sizes)
	require.Equal(t, "0,8,2048,3145728", f.Sizes.String())
	require.NoError(t, f.validate(&Command{Window: 64}, noEnv))
	for _, text := range []string{"", "8,", "-1", "k", "2g", "4096m"} {
		require.ErrorContains(t, (&Sizes{}).Set(text), "is not a size", text)
	}
	f.Iters, f.Window, f.GOMAXPROCS = -1, 0, -1
	err := f.validate(&Command{Window: 64}, noEnv)
	for _, part := range []string{"-iters is -1", "-window is 0", "-gomaxprocs is -1"} {
		require.ErrorContains(t, err, part)
	}
}

func noEnv(string) string { return "" }

func TestFaultsOfFlags(t *testing.T) {
	good := Flags{Sizes: Sizes{8}, Window: 1, OffloadMin: -1, MaxTags: -1}
	for text, spoil := range map[string]func(f *Flags){
		`-device is "foo": this build has auto, shm, tcp`:                      func(f *Flags) { f.Device = "foo" },
		`-device is "bar": this build has auto, shm, tcp`:                      func(f *Flags) { f.Device = "shm,bar" },
		`-transport is "foo": this build has auto, rc, tmsrq`:                  func(f *Flags) { f.Transport = "foo" },
		"-max-tags is 65537: give 0 to 65536, or -1 for the default":           func(f *Flags) { f.MaxTags = maxTags + 1 },
		"-gomaxprocs is 1025: give 1 to 1024, or 0 to leave it":                func(f *Flags) { f.GOMAXPROCS = maxProcs + 1 },
		"-window is 16385: give 1 to 16384":                                    func(f *Flags) { f.Window = maxWindow + 1 },
		"-iters is -1: give 1 or more, or 0 for as many as the size calls for": func(f *Flags) { f.Iters = -1 },
	} {
		f := good
		spoil(&f)
		require.EqualError(t, f.validate(&Command{Window: 64}, noEnv), text)
	}
	good.MaxTags, good.OffloadMin = maxTags, maxOffloadMin
	require.NoError(t, good.validate(&Command{Window: 64}, noEnv), "p2p allows less than the flags")

	err := good.validate(&Command{Window: 64}, func(name string) string { return map[string]string{"TAGMATCH_DEVICE": "foo"}[name] })
	require.ErrorContains(t, err, `TAGMATCH_DEVICE is "foo": this build has auto, shm, tcp`)
}

// TestDamageIsSeen runs loops whose messages arrive damaged or not at all.
func TestDamageIsSeen(t *testing.T) {
	rounds := func(received func(l *Loop)) Test {
		return RoundTrips(func(_ *p2p.World, l *Loop) error {
			for range l.Rounds {
				received(l)
			}
			return nil
		})
	}
	stream := func(received func(i int, buf []byte)) Test {
		return Streams("bw", func(_ *p2p.World, s *Stream) error {
			for n := range s.Batches {
				for i := range n {
					received(i, s.Buf(i))
				}
			}
			return nil
		})
	}
	damaged := func(message int) Test {
		return stream(func(i int, buf []byte) {
			if Fill(buf, i); i == message {
				buf[20]++
			}
		})
	}
	p2ptest.Run(t, 1, func(w *p2p.World) {
		for text, run := range map[string]Test{
			"round 1: a message of 21 bytes arrived damaged: byte 0 is ": rounds(func(*Loop) {}),
			"round 1: a message of 21 bytes arrived damaged: byte 20 is ": rounds(func(l *Loop) {
				copy(l.In, l.Out[:20])
			}),
			"message 0 of 21 bytes arrived damaged: byte 0 is ":  stream(func(int, []byte) {}),
			"message 0 of 21 bytes arrived damaged: byte 20 is ": damaged(0),
			"message 3 of 21 bytes arrived damaged: byte 20 is ": damaged(3), // at the end
		} {
			_, err := run(&Session{Flags: Flags{Window: 3}, World: w}, 21, 10)
			require.ErrorContains(t, err, text)
		}
		r, err := rounds(func(l *Loop) { copy(l.In, l.Out) })(&Session{Flags: Flags{Check: true}, World: w}, 21, 10)
		require.NoError(t, err)
		require.Equal(t, 10, r.Iters)
	})
}

// TestOverlapChecked: with -check a message that arrives damaged in any round is seen.
func TestOverlapChecked(t *testing.T) {
	for _, check := range []bool{false, true} {
		p2ptest.Run(t, 2, func(w *p2p.World) {
			s := &Session{Flags: Flags{Check: check}, World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0}
			o := newOverlap(s, 21)
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

func TestNoCheck(t *testing.T) {
	c := Command{Name: "idle", Sizes: Sizes{8}}
	f, err := c.parse([]string{"-check"}, io.Discard)
	require.NoError(t, err)
	require.True(t, f.Check)
	c.NoCheck = true
	_, err = c.parse([]string{"-check"}, io.Discard)
	require.ErrorContains(t, err, "flag provided but not defined: -check")
}

func TestRanksFlag(t *testing.T) {
	star := Command{Name: "star", N: 8, Sizes: Sizes{8}}
	f, err := star.parse([]string{"-n", "3"}, io.Discard)
	require.NoError(t, err)
	require.Equal(t, 3, f.Ranks)
	for _, n := range []string{"1", "5000"} {
		_, err = star.parse([]string{"-n", n}, io.Discard)
		require.EqualError(t, err, "-n is "+n+": give 2 to 4096 ranks")
	}
	_, err = (&Command{Name: "lat", Sizes: Sizes{8}}).parse([]string{"-n", "3"}, io.Discard)
	require.ErrorContains(t, err, "flag provided but not defined: -n")
}

// TestAsyncFlag: only a flag that was given overrides the environment, here and in jobs of rows.
func TestAsyncFlag(t *testing.T) {
	overlap := Command{Name: "overlap", Sizes: Sizes{8}}
	for arg, want := range map[string]p2p.AsyncMode{"-json": p2p.AsyncDefault, "-async": p2p.AsyncOn, "-async=true": p2p.AsyncOn, "-async=0": p2p.AsyncOff} {
		f, err := overlap.parse([]string{arg}, io.Discard)
		require.NoError(t, err)
		config := f.config()
		require.Equal(t, want, config.Async, arg)
		child, err := overlap.parse(f.chosen(), io.Discard)
		require.NoError(t, err)
		require.Equal(t, want, child.Async, arg)
		for _, row := range OverlapRows(f) {
			wantRow := want
			if want == p2p.AsyncDefault {
				wantRow = map[string]p2p.AsyncMode{"rc": p2p.AsyncOff, "tmsrq": p2p.AsyncOn}[row.Transport]
			}
			require.Equal(t, wantRow, row.Async, "%s %s", arg, row.Transport)
		}
	}
	_, err := overlap.parse([]string{"-async=maybe"}, io.Discard)
	require.ErrorContains(t, err, `invalid boolean value "maybe" for -async: give true or false`)
}

func TestResultLine(t *testing.T) {
	var out bytes.Buffer
	p := reporter{out: &out, json: true}
	require.NoError(t, p.print(&Result{Test: "lat", Device: "shm", Transport: "rc", Size: 8, Iters: 10, AvgUs: 0.5}))
	require.Equal(t, `{"test":"lat","device":"shm","transport":"rc","size":8,"iters":10,"avg_us":0.5,"p50_us":0,"p99_us":0,"mb_s":0,"msg_s":0}`+"\n", out.String())
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
			p := reporter{out: &out, json: asJSON}
			err := p.print(&Result{Test: "lat"})
			require.Equal(t, room < lines, errors.Is(err, syscall.ENOSPC), err)
		}
	}
}

func TestMeasuring(t *testing.T) {
	for _, check := range []bool{false, true} {
		var out bytes.Buffer
		p2ptest.Run(t, 2, func(w *p2p.World) {
			s := &Session{Flags: Flags{Window: 4, Check: check}, World: w, Peer: 1 - w.Rank(), First: w.Rank() == 0,
				report: &reporter{out: &out, json: true}}
			for _, run := range []func(*Session, int, int) (Result, error){PingPong, Bandwidth, Rate, Overlap} {
				for _, size := range []int{0, 9, 100 << 10} {
					r, err := run(s, size, 10)
					require.NoError(t, err)
					if s.First {
						require.NoError(t, s.report.print(&r))
					}
				}
			}
		})
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		require.Len(t, lines, 12)
		var r Result
		require.NoError(t, json.Unmarshal([]byte(lines[2]), &r))
		require.Equal(t, [4]any{"lat", "loop", 100 << 10, 10}, [4]any{r.Test, r.Device, r.Size, r.Iters})
		require.Positive(t, r.AvgUs)
		require.Positive(t, r.MidUs)
		require.Positive(t, r.P99Us)
	}
}

// TestCold has every message of a stream in a buffer of its own, beside each other in pages.
func TestCold(t *testing.T) {
	seen := map[*byte]bool{}
	p2ptest.Run(t, 1, func(w *p2p.World) {
		s := &Session{Flags: Flags{Window: 3, Cold: true}, World: w}
		_, err := Streams("bw", func(_ *p2p.World, st *Stream) error {
			st.verify(false)
			const bufs = coldBytes / 4096
			for i := range 2 * bufs {
				buf := st.Buf(i)
				if len(buf) != 21 || seen[&buf[0]] != (i >= bufs) {
					t.Fatalf("buffer %d has %d bytes; used before: %v", i, len(buf), seen[&buf[0]])
				}
				seen[&buf[0]] = true
			}
			return nil
		})(s, 21, 1)
		require.NoError(t, err)
	})
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
	p := reporter{out: &out}
	require.NoError(t, p.print(&Result{Test: "flood", Flood: &r}))
	require.Contains(t, out.String(), "BEYOND ITS BOUND")
}

func TestMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is measured by Linux's /proc")
	}
	held := bytes.Repeat([]byte{1}, 32<<20)
	now, peak, err := Resident()
	require.NoError(t, err)
	require.Greater(t, now, int64(len(held)))
	require.GreaterOrEqual(t, peak, now)
	free, err := available()
	require.NoError(t, err)
	require.Positive(t, free)
	runtime.KeepAlive(held)
}
