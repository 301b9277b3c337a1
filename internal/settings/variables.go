package settings

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/keepalive"
	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/secure"
)

// variable ties a field of Config to its environment variable.
type variable struct {
	field, env string
	unset      func(c *Config) bool // the program left the default
	// fault returns the field's value and what is allowed instead; "": it is valid.
	fault func(c *Config) (value any, allowed string)
	parse func(c *Config, s string) error
	show  func(c *Config) string // of a Config that is filled in
}

// variables are in the order in which they are shown.
func variables() []variable {
	return []variable{
		text("Device", "TAGMATCH_DEVICE", "", func(c *Config) *string { return &c.Device }, checkDevice),
		text("Transport", "TAGMATCH_TRANSPORT", "", func(c *Config) *string { return &c.Transport }, checkTransport),
		mode("Progress", "TAGMATCH_PROGRESS", func(c *Config) *Progress { return &c.Progress }, progressNames,
			"give ProgressAuto, ProgressManual, or ProgressDefault", "give auto or manual", nil),
		duration("JoinTimeout", bootstrap.EnvJoinTimeout, func(c *Config) *time.Duration { return &c.JoinTimeout },
			func(d time.Duration) bool { return d >= -1 }, allowedJoin, bootstrap.ParseTimeout, showJoin),
		duration("SpinLimit", "TAGMATCH_SPIN_LIMIT", func(c *Config) *time.Duration { return &c.SpinLimit },
			func(d time.Duration) bool { return d >= -1 && d <= maxSpin }, allowedSpin, parseSpin, showSpin),
		number("EagerLimit", "TAGMATCH_EAGER_LIMIT", func(c *Config) *int { return &c.EagerLimit }, maxEager, allowedEager, " bytes"),
		number("UnexpectedLimit", "TAGMATCH_UNEXPECTED_LIMIT", func(c *Config) *int64 { return &c.UnexpectedLimit }, maxLimit, allowedLimit, " bytes"),
		number("SendLimit", "TAGMATCH_SEND_LIMIT", func(c *Config) *int64 { return &c.SendLimit }, maxLimit, allowedLimit, " bytes"),
		number("MaxTags", "TAGMATCH_MAX_TAGS", func(c *Config) *int { return &c.MaxTags }, maxTags, allowedTags, ""),
		number("OffloadMin", "TAGMATCH_OFFLOAD_MIN", func(c *Config) *int { return &c.OffloadMin }, maxLimit, allowedMin, " bytes"),
		mode("Async", "TAGMATCH_ASYNC", func(c *Config) *Async { return &c.Async }, asyncNames,
			"give AsyncAuto, AsyncOn, AsyncOff, or AsyncDefault", "give auto, on or off", showAsync),
		duration("PeerTimeout", "TAGMATCH_PEER_TIMEOUT", func(c *Config) *time.Duration { return &c.PeerTimeout },
			func(d time.Duration) bool { return d == 0 || d >= keepalive.Min && d <= maxPeer }, allowedPeer, parsePeer, time.Duration.String),
		text("TLS", bootstrap.EnvTLS, secure.Off, func(c *Config) *string { return &c.TLS },
			func(s string) error { _, err := secure.Parse(s); return err }),
		text("Ports", bootstrap.EnvPorts, "any", func(c *Config) *string { return &c.Ports },
			func(s string) error { _, err := ports.Parse(s); return err }),
		{"Logger", "TAGMATCH_LOG",
			func(c *Config) bool { return c.Logger == nil },
			func(*Config) (any, string) { return nil, "" },
			parseLog,
			showLog},
		mode("Inspect", "TAGMATCH_INSPECT", func(c *Config) *Inspect { return &c.Inspect }, inspectNames, "give InspectOn or InspectOff", "give on or off", nil),
		text("Watchdog", "TAGMATCH_WATCHDOG", "off", func(c *Config) *string { return &c.Watchdog },
			func(s string) error { _, _, err := ParseWatchdog(s); return err }),
		text("Trace", "TAGMATCH_TRACE", "off", func(c *Config) *string { return &c.Trace },
			func(s string) error { _, _, err := ParseTrace(s); return err }),
	}
}

// text is a field that check may refuse; other is shown where it is empty.
func text(field, env, other string, at func(*Config) *string, check func(string) error) variable {
	return variable{field, env,
		func(c *Config) bool { return *at(c) == "" },
		func(c *Config) (any, string) {
			if s := *at(c); s != "" {
				if err := check(s); err != nil {
					return strconv.Quote(s), err.Error()
				}
			}
			return nil, ""
		},
		func(c *Config, s string) error { *at(c) = s; return check(s) },
		func(c *Config) string {
			if *at(c) == "" {
				return other
			}
			return *at(c)
		}}
}

// number is a field of -1 (none), 0 (the default), or 1 to most.
func number[N int | int64](field, env string, at func(*Config) *N, most int64, allowed, unit string) variable {
	return variable{field, env,
		func(c *Config) bool { return *at(c) == 0 },
		func(c *Config) (any, string) {
			if n := int64(*at(c)); n < -1 || n > most {
				return n, allowed
			}
			return nil, ""
		},
		func(c *Config, s string) error {
			n, err := parseBytes(s, most, allowed)
			*at(c) = N(n)
			return err
		},
		func(c *Config) string {
			if *at(c) < 0 {
				return "none"
			}
			return strconv.FormatInt(int64(*at(c)), 10) + unit
		}}
}

func duration(field, env string, at func(*Config) *time.Duration, valid func(time.Duration) bool, allowed string,
	parse func(string) (time.Duration, error), show func(time.Duration) string) variable {
	return variable{field, env,
		func(c *Config) bool { return *at(c) == 0 },
		func(c *Config) (any, string) {
			if valid(*at(c)) {
				return nil, ""
			}
			return *at(c), allowed
		},
		func(c *Config, s string) (err error) {
			*at(c), err = parse(s)
			return err
		},
		func(c *Config) string { return show(*at(c)) }}
}

// mode is a field whose values have names, but for 0; show is for more than these.
func mode[M ~uint8](field, env string, at func(*Config) *M, names map[M]string, allowed, allowedName string, show func(*Config) string) variable {
	if show == nil {
		show = func(c *Config) string { return names[*at(c)] }
	}
	return variable{field, env,
		func(c *Config) bool { return *at(c) == 0 },
		func(c *Config) (any, string) {
			if m := *at(c); m != 0 && names[m] == "" {
				return fmt.Sprint(uint8(m)), allowed
			}
			return nil, ""
		},
		func(c *Config, s string) error { return parseName(at(c), names, s, allowedName) },
		show}
}

var (
	progressNames = map[Progress]string{ProgressAuto: Auto, ProgressManual: "manual"}
	asyncNames    = map[Async]string{AsyncAuto: Auto, AsyncOn: "on", AsyncOff: "off"}
	inspectNames  = map[Inspect]string{InspectOn: "on", InspectOff: "off"}
	// logLevels are the values of TAGMATCH_LOG.
	logLevels = map[slog.Level]string{slog.LevelWarn: "warn", slog.LevelInfo: "info", slog.LevelDebug: "debug"}
)
