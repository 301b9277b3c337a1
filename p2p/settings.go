package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/keepalive"
	"github.com/tagmatch/tagmatch/internal/ports"
	"github.com/tagmatch/tagmatch/internal/secure"
)

// Setting is one setting in effect, as `tagmatch info` prints it.
type Setting struct {
	Field  string // of Config
	Env    string // the environment variable
	Value  string
	Origin string // "program", the variable's name, or "default"
}

// variable ties a field of Config to its environment variable.
type variable struct {
	field, env string
	unset      func(c *Config) bool // the program left the default
	parse      func(c *Config, s string) error
	show       func(c *Config) string // the value in effect, defaults filled in
}

func variables() []variable {
	return []variable{
		{"Device", "TAGMATCH_DEVICE",
			func(c *Config) bool { return c.Device == "" },
			func(c *Config, s string) error { c.Device = s; return checkDevice(s) },
			func(c *Config) string { return orAuto(c.Device) }},
		{"Transport", "TAGMATCH_TRANSPORT",
			func(c *Config) bool { return c.Transport == "" },
			func(c *Config, s string) error { c.Transport = s; return known(s, Transports()) },
			func(c *Config) string { return orAuto(c.Transport) }},
		{"Progress", "TAGMATCH_PROGRESS",
			func(c *Config) bool { return c.Progress == ProgressDefault },
			parseProgress,
			func(c *Config) string { return progressNames[cmp.Or(c.Progress, ProgressAuto)] }},
		{"JoinTimeout", bootstrap.EnvJoinTimeout,
			func(c *Config) bool { return c.JoinTimeout == 0 },
			func(c *Config, s string) (err error) {
				c.JoinTimeout, err = bootstrap.ParseTimeout(s)
				return err
			},
			func(c *Config) string {
				if c.JoinTimeout < 0 {
					return "none"
				}
				return c.joinTimeout().String()
			}},
		{"SpinLimit", "TAGMATCH_SPIN_LIMIT",
			func(c *Config) bool { return c.SpinLimit == 0 },
			parseSpin,
			showSpin},
		{"EagerLimit", "TAGMATCH_EAGER_LIMIT",
			func(c *Config) bool { return c.EagerLimit == 0 },
			func(c *Config, s string) (err error) {
				n, err := parseBytes(s, maxEager, allowedEager)
				c.EagerLimit = int(n)
				return err
			},
			func(c *Config) string { return showBytes(int64(c.EagerLimit), defaultEager) }},
		{"UnexpectedLimit", "TAGMATCH_UNEXPECTED_LIMIT",
			func(c *Config) bool { return c.UnexpectedLimit == 0 },
			func(c *Config, s string) (err error) {
				c.UnexpectedLimit, err = parseBytes(s, maxLimit, allowedLimit)
				return err
			},
			func(c *Config) string { return showBytes(c.UnexpectedLimit, defaultUnexpected) }},
		{"SendLimit", "TAGMATCH_SEND_LIMIT",
			func(c *Config) bool { return c.SendLimit == 0 },
			func(c *Config, s string) (err error) {
				c.SendLimit, err = parseBytes(s, maxLimit, allowedLimit)
				return err
			},
			func(c *Config) string { return showBytes(c.SendLimit, defaultSend) }},
		{"MaxTags", "TAGMATCH_MAX_TAGS",
			func(c *Config) bool { return c.MaxTags == 0 },
			func(c *Config, s string) error {
				n, err := parseBytes(s, maxTags, allowedTags)
				c.MaxTags = int(n)
				return err
			},
			func(c *Config) string { return strings.TrimSuffix(showBytes(int64(c.MaxTags), defaultTags), " bytes") }},
		{"OffloadMin", "TAGMATCH_OFFLOAD_MIN",
			func(c *Config) bool { return c.OffloadMin == 0 },
			func(c *Config, s string) error {
				n, err := parseBytes(s, maxLimit, allowedMin)
				c.OffloadMin = int(n)
				return err
			},
			func(c *Config) string { return showBytes(int64(c.OffloadMin), defaultOffloadMin) }},
		{"Async", "TAGMATCH_ASYNC",
			func(c *Config) bool { return c.Async == AsyncDefault },
			parseAsync,
			showAsync},
		{"PeerTimeout", "TAGMATCH_PEER_TIMEOUT",
			func(c *Config) bool { return c.PeerTimeout == 0 },
			parsePeerTimeout,
			func(c *Config) string { return c.peerTimeout().String() }},
		{"TLS", bootstrap.EnvTLS,
			func(c *Config) bool { return c.TLS == "" },
			func(c *Config, s string) error {
				c.TLS = s
				_, err := secure.Parse(s)
				return err
			},
			func(c *Config) string { return cmp.Or(c.TLS, secure.Off) }},
		{"Ports", bootstrap.EnvPorts,
			func(c *Config) bool { return c.Ports == "" },
			func(c *Config, s string) error {
				c.Ports = s
				_, err := ports.Parse(s)
				return err
			},
			func(c *Config) string { return cmp.Or(c.Ports, "any") }},
		{"Logger", "TAGMATCH_LOG",
			func(c *Config) bool { return c.Logger == nil },
			parseLog,
			showLog},
	}
}

// Effective lists the settings that Init would use, from field, variable or default in this order,
// and every fault of fields and variables at once. The launcher's own variables are those of
// package bootstrap; CheckEnvironment finds misspelled names.
func (c *Config) Effective(getenv func(string) string) ([]Setting, error) {
	_, settings, err := c.resolve(getenv)
	return settings, err
}

// resolve returns c with the variables filled in.
func (c *Config) resolve(getenv func(string) string) (Config, []Setting, error) {
	out := *c
	errs := []error{c.Validate()}
	var settings []Setting
	for _, v := range variables() {
		origin := "program"
		if v.unset(&out) {
			origin = "default"
			if s := getenv(v.env); s != "" {
				origin = v.env
				scratch := out
				if err := v.parse(&scratch, s); err != nil {
					errs = append(errs, invalidf("%s is %q: %v", v.env, s, err))
				} else {
					out = scratch
				}
			}
		}
		settings = append(settings, Setting{v.field, v.env, v.show(&out), origin})
	}
	out.Progress, out.Async = cmp.Or(out.Progress, ProgressAuto), cmp.Or(out.Async, AsyncAuto)
	return out, settings, errors.Join(errs...)
}

var progressNames = map[ProgressMode]string{ProgressAuto: auto, ProgressManual: "manual"}

func known(name string, names []string) error {
	if !validName(name, names) {
		return errors.New(oneOf(names))
	}
	return nil
}

func orAuto(name string) string {
	if name == "" {
		return auto
	}
	return name
}

func parseProgress(c *Config, s string) error {
	return parseMode(&c.Progress, progressNames, s, "give auto or manual")
}

var asyncNames = map[AsyncMode]string{AsyncAuto: auto, AsyncOn: "on", AsyncOff: "off"}

// showAsync is called when the fields that AsyncAuto looks at have their values.
func showAsync(c *Config) string {
	switch mode := cmp.Or(c.Async, AsyncAuto); {
	case mode != AsyncAuto:
		return asyncNames[mode]
	case c.autoAsync():
		return "auto (on)"
	}
	return "auto (off)"
}

func parseAsync(c *Config, s string) error {
	return parseMode(&c.Async, asyncNames, s, "give auto, on or off")
}

// parseMode finds the mode of a name.
func parseMode[M comparable](mode *M, names map[M]string, s, allowed string) error {
	for m, name := range names {
		if s == name {
			*mode = m
			return nil
		}
	}
	return errors.New(allowed)
}

func parsePeerTimeout(c *Config, s string) error {
	d, err := time.ParseDuration(s)
	if err != nil || d < keepalive.Min || d > maxPeer {
		return errors.New(strings.Replace(allowedPeer, "give", "give a duration such as 30s,", 1))
	}
	c.PeerTimeout = d
	return nil
}

// logLevels are the values of TAGMATCH_LOG.
var logLevels = map[slog.Level]string{slog.LevelWarn: "warn", slog.LevelInfo: "info", slog.LevelDebug: "debug"}

// parseLog makes a Logger to the standard error output. Where that of many ranks comes together,
// each record says whose it is.
func parseLog(c *Config, s string) error {
	var level slog.Level
	if err := parseMode(&level, logLevels, s, "give warn, info or debug"); err != nil {
		return err
	}
	host, _ := os.Hostname()
	c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("host", host, "pid", os.Getpid())
	return nil
}

func showLog(c *Config) string {
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn} {
		if c.Logger != nil && c.Logger.Enabled(context.Background(), level) {
			return logLevels[level]
		}
	}
	return "none"
}

func parseSpin(c *Config, s string) error {
	if s == "-1" || s == "none" {
		c.SpinLimit = -1
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxSpin {
		return errors.New(strings.Replace(allowedSpin, "give", "give a duration such as 20us,", 1))
	}
	c.SpinLimit = d
	return nil
}

func showSpin(c *Config) string {
	switch {
	case c.SpinLimit < 0:
		return "none"
	case c.SpinLimit == 0:
		return fmt.Sprintf("adaptive, at most %v", defaultSpin)
	}
	return c.SpinLimit.String()
}

// parseBytes reads "none", -1, or a number with an optional k, m or g (powers of 1024).
func parseBytes(s string, most int64, allowed string) (int64, error) {
	if s == "none" {
		return -1, nil
	}
	digits, shift := s, 0
	if i := strings.IndexByte("kmg", s[len(s)-1]|0x20); i >= 0 {
		digits, shift = s[:len(s)-1], 10*(i+1)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < -1 || n > most>>shift || n < 0 && shift > 0 {
		return 0, errors.New(allowed)
	}
	return n << shift, nil
}

func showBytes(n int64, def int64) string {
	switch {
	case n < 0:
		return "none"
	case n == 0:
		n = def
	}
	return strconv.FormatInt(n, 10) + " bytes"
}
