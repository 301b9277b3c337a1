package p2p

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/settings"
	"github.com/tagmatch/tagmatch/progress"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
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

func TestInitRefusesUnknownVariables(t *testing.T) {
	t.Setenv("TAGMATCH_TRANPORT", "rc")
	_, err := Init(t.Context(), Config{})
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "did you mean TAGMATCH_TRANSPORT?")
}

// TestSettings: each field that a variable may set comes to what the program gives, and the modes
// are numbered as those of package settings.
func TestSettings(t *testing.T) {
	c := Config{Device: "shm", Transport: "rc", Progress: ProgressManual, JoinTimeout: 1, SpinLimit: 2, EagerLimit: 3, UnexpectedLimit: 4, SendLimit: 5,
		MaxTags: 6, OffloadMin: 7, Async: AsyncOff, PeerTimeout: 8, TLS: "secret", Ports: "1-2", Logger: slog.New(slog.DiscardHandler)}
	full := reflect.ValueOf(c.settings())
	for i := range full.NumField() {
		field := full.Type().Field(i).Name
		if field == "Inspect" || field == "Watchdog" || field == "Trace" { // only their variables set them
			continue
		}
		require.EqualValues(t, reflect.ValueOf(c).FieldByName(field).Interface(), full.Field(i).Convert(reflect.ValueOf(c).FieldByName(field).Type()).Interface(), field)
		require.False(t, full.Field(i).IsZero(), field)
	}
	_, shown, faults := (&Config{Progress: ProgressManual, Async: AsyncOff}).settings().Resolve(func(string) string { return "" })
	require.Empty(t, faults)
	require.Contains(t, shown, settings.Setting{Field: "Progress", Env: "TAGMATCH_PROGRESS", Value: "manual", Origin: "program"})
	require.Contains(t, shown, settings.Setting{Field: "Async", Env: "TAGMATCH_ASYNC", Value: "off", Origin: "program"})
}

// nic is a device that works by itself anyway.
type nic struct{ verbs.Device }

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
		runtime.GOMAXPROCS(c.procs)
		full, shown, _ := c.cfg.settings().Resolve(func(string) string { return "" })
		if full.Async == settings.AsyncAuto {
			async := settings.Setting{Field: "Async", Env: "TAGMATCH_ASYNC", Value: map[bool]string{true: "auto (on)", false: "auto (off)"}[c.async], Origin: "default"}
			require.Contains(t, shown, async)
		}
		w := &World{cfg: full, parts: parts{devs: []verbs.Device{&soft.Device{}, nic{}}}}
		require.Equal(t, c.async, len(w.async()) == 1, "%+v with GOMAXPROCS %d", c.cfg, c.procs)
	}
}
