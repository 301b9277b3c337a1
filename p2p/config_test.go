package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/progress"
)

func TestValidateReportsEverything(t *testing.T) {
	c := Config{Device: "foo", Transport: "bar", Secret: []byte("short"), Progress: 7, Async: 9, SpinLimit: -2, EagerLimit: 1 << 30,
		UnexpectedLimit: -5, SendLimit: -2, MaxTags: -3, OffloadMin: -2, JoinTimeout: -3, PeerTimeout: time.Second}
	err := c.Validate()
	require.ErrorIs(t, err, ErrInvalid)
	for _, part := range []string{
		`Config.Device is "foo": this build has auto, shm, tcp`,
		`Config.Transport is "bar": this build has auto, rc, tmsrq`,
		"Config.Secret is 5 bytes long: give 32",
		"Config.Progress is 7: give ProgressAuto",
		"Config.Async is 9: give AsyncAuto",
		"Config.SpinLimit is -2ns: give up to 1s, 0 for the default, or -1 to park at once",
		"Config.EagerLimit is 1073741824: give 1 to 65536 bytes",
		"Config.JoinTimeout is -3ns: give a positive duration, 0 for the default, or -1 for no limit",
		"Config.UnexpectedLimit is -5",
		"Config.SendLimit is -2",
		"Config.MaxTags is -3: give 1 to 65536, 0 for the default, or -1 for none",
		"Config.OffloadMin is -2: give 1 to 1099511627776 bytes, 0 for the default, or -1 for no minimum",
		"Config.PeerTimeout is 1s: give 6s to 1h0m0s, or 0 for the default",
	} {
		require.ErrorContains(t, err, part)
	}
	require.NoError(t, (&Config{}).Validate())
	require.NoError(t, (&Config{EagerLimit: -1, SpinLimit: -1, UnexpectedLimit: -1, SendLimit: -1}).Validate())
}

func TestSeveralDevices(t *testing.T) {
	for name, want := range map[string]string{
		"shm,tcp": "", "tcp,shm": "", "auto": "", "": "",
		"shm,foo": `there is no device "foo"`, "shm,": `there is no device ""`, "shm,tcp,shm": "shm is named twice", "auto,tcp": "auto stands alone",
	} {
		err := (&Config{Device: name}).Validate()
		if want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, want)
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
		"TAGMATCH_PORTS": "4000-4010", "TAGMATCH_TLS": "secret",
	})
	c := Config{Device: "shm"}
	full, settings, err := c.resolve(vars)
	require.NoError(t, err)
	require.Equal(t, Config{Device: "shm", Progress: ProgressManual, JoinTimeout: 90 * time.Second, SpinLimit: 20 * time.Microsecond, EagerLimit: 4096,
		UnexpectedLimit: -1, SendLimit: 1 << 30, MaxTags: -1, OffloadMin: 64, Async: AsyncOn, PeerTimeout: time.Minute,
		Ports: "4000-4010", TLS: "secret"}, full)
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
	}, settings)
	require.Equal(t, Config{Device: "shm"}, c, "the caller's Config is not changed")

	full, settings, err = (&Config{Progress: ProgressAuto}).resolve(vars)
	require.NoError(t, err)
	require.Equal(t, ProgressAuto, full.Progress, "a program can insist")
	require.Equal(t, Setting{"Progress", "TAGMATCH_PROGRESS", "auto", "program"}, settings[2])
	full, settings, err = (&Config{}).resolve(env(nil))
	require.NoError(t, err)
	require.Equal(t, ProgressAuto, full.Progress)
	require.Equal(t, Setting{"Progress", "TAGMATCH_PROGRESS", "auto", "default"}, settings[2])
}

func TestVariablesAreChecked(t *testing.T) {
	for name, value := range map[string]string{
		"TAGMATCH_DEVICE": "mlx5_0", "TAGMATCH_TRANSPORT": "ud", "TAGMATCH_PROGRESS": "never", "TAGMATCH_SPIN_LIMIT": "5",
		"TAGMATCH_EAGER_LIMIT": "1m", "TAGMATCH_UNEXPECTED_LIMIT": "many", "TAGMATCH_SEND_LIMIT": "-2", "TAGMATCH_ASYNC": "yes",
		"TAGMATCH_JOIN_TIMEOUT": "soon", "TAGMATCH_PEER_TIMEOUT": "5s",
		"TAGMATCH_LOG": "loud", "TAGMATCH_PORTS": "4010-4000", "TAGMATCH_TLS": "on",
	} {
		_, err := (&Config{}).Effective(env(map[string]string{name: value}))
		require.ErrorIs(t, err, ErrInvalid, name)
		require.ErrorContains(t, err, name+` is "`+value+`": `)
	}
}

// TestLogOfEnvironment: TAGMATCH_LOG is for programs that give no Logger.
func TestLogOfEnvironment(t *testing.T) {
	for name, level := range map[string]slog.Level{"warn": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug} {
		vars := env(map[string]string{"TAGMATCH_LOG": name})
		full, settings, err := (&Config{}).resolve(vars)
		require.NoError(t, err)
		require.Contains(t, settings, Setting{"Logger", "TAGMATCH_LOG", name, "TAGMATCH_LOG"})
		require.True(t, full.Logger.Enabled(t.Context(), level))
		require.False(t, full.Logger.Enabled(t.Context(), level-1))
		own := slog.New(slog.DiscardHandler)
		full, settings, err = (&Config{Logger: own}).resolve(vars)
		require.NoError(t, err)
		require.Same(t, own, full.Logger)
		require.Contains(t, settings, Setting{"Logger", "TAGMATCH_LOG", "none", "program"})
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

func TestErrorTexts(t *testing.T) {
	err := error(&OpError{opRecv, 3, 7, fmt.Errorf("%w: 16 bytes into 8", ErrTruncated), nil})
	require.EqualError(t, err, "p2p: recv from 3, tag 0x7: message longer than the buffer: 16 bytes into 8")
	require.ErrorIs(t, err, ErrTruncated)
	err = &OpError{opSend, 2, 0, &PeerError{[]int{2}, errors.New("its process ended")}, nil}
	require.EqualError(t, err, "p2p: send to 2, tag 0x0: rank 2 lost: its process ended")
	require.ErrorIs(t, err, ErrPeerLost)
	err = &OpError{opRecv, AnySource, AnyTag, &PeerError{Ranks: []int{1, 4}}, nil}
	require.EqualError(t, err, "p2p: recv from any, any tag: ranks 1, 4 lost")
	cause := fmt.Errorf("%w: too long", ErrProtocol)
	err = opError(opRecv, 1, 0, nil, &progress.PeerError{Ranks: []int{1}, Cause: cause})
	require.EqualError(t, err, "p2p: recv from 1, tag 0x0: rank 1 lost: peer broke the protocol: too long")
	require.ErrorIs(t, err, ErrProtocol)
	var peer *PeerError
	require.ErrorAs(t, err, &peer)
	require.Equal(t, &PeerError{[]int{1}, cause}, peer)
	require.NotErrorIs(t, opError(opRecv, 1, 0, nil, &progress.PeerError{Ranks: []int{1}, Cause: context.DeadlineExceeded}), context.DeadlineExceeded)
	require.EqualError(t, peer, "p2p: rank 1 lost: peer broke the protocol: too long")
}

// TestLossCause: what the launcher's store says of a loss. A rank that was given up because it, or
// the other, broke the protocol has that as its error too.
func TestLossCause(t *testing.T) {
	violation := fmt.Errorf("%w: too long", ErrProtocol)
	for reason, want := range map[string]string{
		violation.Error(): "rank 3 has given this rank up: peer broke the protocol: too long",
		"no route":        "rank 3 has given this rank up: no route",
	} {
		err := lossCause(bootstrap.Loss{Rank: 3, Reason: reason, GivenUp: true})
		require.EqualError(t, err, want)
		require.Equal(t, reason == violation.Error(), errors.Is(err, ErrProtocol))
	}
	for reason, want := range map[string]string{
		bootstrap.ReasonLeft:      "it has closed its World while this rank still counted on it",
		"was lost: end of stream": "end of stream",
		violation.Error():         violation.Error(),
	} {
		err := lossCause(bootstrap.Loss{Rank: 3, Reason: reason})
		require.EqualError(t, err, want)
		require.NotErrorIs(t, err, ErrProtocol)
	}
}

// TestAsync: by default the device works by itself where it matches, may, and has a thread.
func TestAsync(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, c := range []struct {
		cfg   Config
		procs int
		async bool
	}{
		{Config{}, 2, true},
		{Config{Transport: "auto", Progress: ProgressAuto}, 3, true},
		{Config{}, 1, false},
		{Config{Progress: ProgressManual}, 2, false},
		{Config{MaxTags: -1}, 2, false},
		{Config{Transport: "rc"}, 2, false},
		{Config{Transport: "tmsrq"}, 2, false},
		{Config{Async: AsyncOff}, 2, false},
		{Config{Async: AsyncOn, Progress: ProgressManual, Transport: "rc"}, 1, true},
	} {
		full, _, err := c.cfg.resolve(env(nil))
		require.NoError(t, err)
		runtime.GOMAXPROCS(c.procs)
		if cmp.Or(c.cfg.Async, AsyncAuto) == AsyncAuto {
			require.Equal(t, map[bool]string{true: "auto (on)", false: "auto (off)"}[c.async], showAsync(&full))
		}
		w := &World{cfg: full, size: 8191}
		require.Equal(t, c.async, w.async(), "%+v with GOMAXPROCS %d", c.cfg, c.procs)
		w.size = 8192
		require.Equal(t, c.cfg.Async == AsyncOn, w.async(), "%+v in a job that is too large", c.cfg)
	}
}
