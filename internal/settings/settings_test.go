package settings

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSeveralDevices(t *testing.T) {
	for name, want := range map[string]string{
		"shm,tcp": "", "tcp,shm": "", "auto": "", "": "",
		"shm,foo": `there is no device "foo"`, "shm,": `there is no device ""`, "shm,tcp,shm": "shm is named twice", "auto,tcp": "auto stands alone",
	} {
		faults := Config{Device: name}.Faults()
		if want == "" {
			require.Empty(t, faults, name)
		} else {
			require.Len(t, faults, 1, name)
			require.ErrorContains(t, faults[0], want)
		}
	}
}

func env(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestPrecedence(t *testing.T) {
	vars := env(map[string]string{
		"TAGMATCH_DEVICE": "tcp", "TAGMATCH_EAGER_LIMIT": "4k", "TAGMATCH_SPIN_LIMIT": "20us",
		"TAGMATCH_UNEXPECTED_LIMIT": "none", "TAGMATCH_SEND_LIMIT": "1G", "TAGMATCH_PROGRESS": "manual",
		"TAGMATCH_MAX_TAGS": "none", "TAGMATCH_OFFLOAD_MIN": "64", "TAGMATCH_ASYNC": "on",
		"TAGMATCH_JOIN_TIMEOUT": "90s", "TAGMATCH_PEER_TIMEOUT": "1m",
		"TAGMATCH_PORTS": "4000-4010", "TAGMATCH_TLS": "secret", "TAGMATCH_INSPECT": "off", "TAGMATCH_WATCHDOG": "90s,abort",
		"TAGMATCH_TRACE": "ring:/d",
	})
	c := Config{Device: "shm"}
	full, list, faults := c.Resolve(vars)
	require.Empty(t, faults)
	require.Equal(t, Config{Device: "shm", Transport: "auto", Progress: ProgressManual, JoinTimeout: 90 * time.Second, SpinLimit: 20 * time.Microsecond, EagerLimit: 4096,
		UnexpectedLimit: -1, SendLimit: 1 << 30, MaxTags: -1, OffloadMin: 64, Async: AsyncOn, PeerTimeout: time.Minute,
		Ports: "4000-4010", TLS: "secret", Inspect: InspectOff, Watchdog: "90s,abort", Trace: "ring:/d"}, full)
	require.Equal(t, []Setting{
		{"Device", "TAGMATCH_DEVICE", "shm", "program"},
		{"Transport", "TAGMATCH_TRANSPORT", "auto", "default"},
		{"Progress", "TAGMATCH_PROGRESS", "manual", "TAGMATCH_PROGRESS"},
		{"JoinTimeout", "TAGMATCH_JOIN_TIMEOUT", "1m30s", "TAGMATCH_JOIN_TIMEOUT"},
		{"SpinLimit", "TAGMATCH_SPIN_LIMIT", "20µs", "TAGMATCH_SPIN_LIMIT"},
		{"EagerLimit", "TAGMATCH_EAGER_LIMIT", "4096 bytes", "TAGMATCH_EAGER_LIMIT"},
		{"UnexpectedLimit", "TAGMATCH_UNEXPECTED_LIMIT", "none", "TAGMATCH_UNEXPECTED_LIMIT"},
		{"SendLimit", "TAGMATCH_SEND_LIMIT", "1073741824 bytes", "TAGMATCH_SEND_LIMIT"},
		{"MaxTags", "TAGMATCH_MAX_TAGS", "none", "TAGMATCH_MAX_TAGS"},
		{"OffloadMin", "TAGMATCH_OFFLOAD_MIN", "64 bytes", "TAGMATCH_OFFLOAD_MIN"},
		{"Async", "TAGMATCH_ASYNC", "on", "TAGMATCH_ASYNC"},
		{"PeerTimeout", "TAGMATCH_PEER_TIMEOUT", "1m0s", "TAGMATCH_PEER_TIMEOUT"},
		{"TLS", "TAGMATCH_TLS", "secret", "TAGMATCH_TLS"},
		{"Ports", "TAGMATCH_PORTS", "4000-4010", "TAGMATCH_PORTS"},
		{"Logger", "TAGMATCH_LOG", "none", "default"},
		{"Inspect", "TAGMATCH_INSPECT", "off", "TAGMATCH_INSPECT"},
		{"Watchdog", "TAGMATCH_WATCHDOG", "90s,abort", "TAGMATCH_WATCHDOG"},
		{"Trace", "TAGMATCH_TRACE", "ring:/d", "TAGMATCH_TRACE"},
	}, list)
	require.Equal(t, Config{Device: "shm"}, c, "the caller's Config is not changed")

	full, list, faults = Config{Progress: ProgressAuto}.Resolve(vars)
	require.Empty(t, faults)
	require.Equal(t, ProgressAuto, full.Progress, "a program can insist")
	require.Equal(t, Setting{"Progress", "TAGMATCH_PROGRESS", "auto", "program"}, list[2])
	full, list, faults = Config{}.Resolve(env(nil))
	require.Empty(t, faults)
	require.Equal(t, Config{Device: "auto", Transport: "auto", Progress: ProgressAuto, JoinTimeout: 5 * time.Minute, EagerLimit: 32 << 10,
		UnexpectedLimit: 64 << 20, SendLimit: 1 << 30, MaxTags: 1024, OffloadMin: 1 << 20, Async: AsyncAuto, PeerTimeout: 20 * time.Second,
		Inspect: InspectOn}, full)
	require.Equal(t, Setting{"Progress", "TAGMATCH_PROGRESS", "auto", "default"}, list[2])
	require.Equal(t, Setting{"SpinLimit", "TAGMATCH_SPIN_LIMIT", "adaptive, at most 50µs", "default"}, list[4])
}

func TestVariablesAreChecked(t *testing.T) {
	defaults, _, _ := Config{}.Resolve(env(nil))
	for name, value := range map[string]string{
		"TAGMATCH_DEVICE": "mlx5_0", "TAGMATCH_TRANSPORT": "ud", "TAGMATCH_PROGRESS": "never", "TAGMATCH_SPIN_LIMIT": "5",
		"TAGMATCH_EAGER_LIMIT": "1m", "TAGMATCH_UNEXPECTED_LIMIT": "many", "TAGMATCH_SEND_LIMIT": "-2", "TAGMATCH_ASYNC": "yes",
		"TAGMATCH_JOIN_TIMEOUT": "soon", "TAGMATCH_PEER_TIMEOUT": "5s",
		"TAGMATCH_LOG": "loud", "TAGMATCH_PORTS": "4010-4000", "TAGMATCH_TLS": "on", "TAGMATCH_WATCHDOG": "5m,kill",
	} {
		full, _, faults := Config{}.Resolve(env(map[string]string{name: value}))
		require.Equal(t, defaults, full, name)
		require.Len(t, faults, 1, name)
		require.ErrorContains(t, faults[0], name+` is "`+value+`": `)
	}
}

// TestLogOfEnvironment: TAGMATCH_LOG is for programs that give no Logger.
func TestLogOfEnvironment(t *testing.T) {
	for name, level := range map[string]slog.Level{"warn": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug} {
		vars := env(map[string]string{"TAGMATCH_LOG": name})
		full, list, faults := Config{}.Resolve(vars)
		require.Empty(t, faults)
		require.Contains(t, list, Setting{"Logger", "TAGMATCH_LOG", name, "TAGMATCH_LOG"})
		require.True(t, full.Logger.Enabled(t.Context(), level))
		require.False(t, full.Logger.Enabled(t.Context(), level-1))
		own := slog.New(slog.DiscardHandler)
		full, list, faults = Config{Logger: own}.Resolve(vars)
		require.Empty(t, faults)
		require.Same(t, own, full.Logger)
		require.Contains(t, list, Setting{"Logger", "TAGMATCH_LOG", "none", "program"})
	}
}

func TestParseWatchdog(t *testing.T) {
	for s, want := range map[string]struct {
		limit time.Duration
		abort bool
	}{"": {}, "off": {}, "5m": {5 * time.Minute, false}, "1s,abort": {time.Second, true}} {
		limit, abort, err := ParseWatchdog(s)
		require.NoError(t, err, s)
		require.Equal(t, want.limit, limit, s)
		require.Equal(t, want.abort, abort, s)
	}
	for _, s := range []string{"5", "999ms", "-5m", "abort", "5m,", "5m abort", ",abort"} {
		_, _, err := ParseWatchdog(s)
		require.ErrorContains(t, err, "give a duration of at least 1s, such as 5m", s)
	}
}

func TestParseTrace(t *testing.T) {
	for s, want := range map[string]struct {
		dir string
		on  bool
	}{"": {}, "off": {}, "ring": {"", true}, "ring:/a:b": {"/a:b", true}} {
		dir, on, err := ParseTrace(s)
		require.NoError(t, err, s)
		require.Equal(t, want.dir, dir, s)
		require.Equal(t, want.on, on, s)
	}
	for _, s := range []string{"on", "rings", "ring:", "/tmp"} {
		_, _, err := ParseTrace(s)
		require.EqualError(t, err, "give ring, ring:DIR with the directory of the files, or off", s)
	}
}

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "17": 17, "2k": 2048, "3M": 3 << 20, "1g": 1 << 30, "-1": -1, "none": -1} {
		n, err := parseBytes(text, maxLimit, "")
		require.NoError(t, err, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"k", "-1k", "1t", "9999999999g", "1.5k", " 1"} {
		_, err := parseBytes(text, maxLimit, "allowed")
		require.EqualError(t, err, "allowed", text)
	}
}
