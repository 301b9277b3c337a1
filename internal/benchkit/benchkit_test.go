package benchkit

import (
	"bytes"
	"encoding/json"
	"flag"
	"strings"
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
	require.NoError(t, f.validate(true, noEnv))
	for _, text := range []string{"", "8,", "-1", "k", "2g", "4096m"} {
		require.ErrorContains(t, (&Sizes{}).Set(text), "is not a size", text)
	}
	f.Iters, f.Window, f.GOMAXPROCS = -1, 0, -1
	err := f.validate(true, noEnv)
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
		require.EqualError(t, f.validate(true, noEnv), text)
	}
	good.MaxTags, good.OffloadMin = maxTags, maxOffloadMin
	require.NoError(t, good.validate(true, noEnv), "p2p allows less than the flags")

	err := good.validate(true, func(name string) string { return map[string]string{"TAGMATCH_DEVICE": "foo"}[name] })
	require.ErrorContains(t, err, `TAGMATCH_DEVICE is "foo": this build has auto, shm, tcp`)
}

func TestVerifyNamesTheDamage(t *testing.T) {
	buf := make([]byte, 21)
	fill(buf, 5)
	st := p2p.Status{Source: 3, Len: 21}
	require.NoError(t, verify(buf, st, 5))
	require.Error(t, verify(buf, st, 6))
	buf[20] ^= 1
	require.ErrorContains(t, verify(buf, st, 5), "message 5 of 21 bytes from rank 3 arrived damaged: byte 20")
	require.ErrorContains(t, verify(buf[:8], st, 5), "has 21 bytes, want 8")
}

func TestResultLine(t *testing.T) {
	var out bytes.Buffer
	p := reporter{out: &out, json: true}
	require.NoError(t, p.print(&Result{Test: "lat", Device: "shm", Transport: "rc", Size: 8, Iters: 10, AvgUs: 0.5}))
	require.Equal(t, `{"test":"lat","device":"shm","transport":"rc","size":8,"iters":10,"avg_us":0.5,"p50_us":0,"p99_us":0,"mb_s":0,"msg_s":0}`+"\n", out.String())
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
		require.Positive(t, r.P99Us)
	}
}
