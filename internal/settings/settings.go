// Package settings is what p2p.Config and the TAGMATCH_ variables come to: their names, bounds and
// defaults, and where each value in effect comes from. Package p2p works with it, `tagmatch info`
// and measuring programs show it.
//
// Concurrency: it has functions and constant values only.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/keepalive"
	"github.com/tagmatch/tagmatch/internal/secure"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

// Names of Config.Device and Config.Transport.
const (
	Auto = "auto"

	SHM = "shm"
	TCP = "tcp"

	RC    = "rc"
	TMSRQ = "tmsrq" // the device matches
)

// Transports lists the transports of this build, "auto" first. The slice is the caller's.
func Transports() []string { return []string{Auto, RC, TMSRQ} }

// Progress has the values of p2p.ProgressMode.
type Progress uint8

// See package p2p.
const (
	ProgressDefault Progress = iota
	ProgressAuto
	ProgressManual
)

// Async has the values of p2p.AsyncMode.
type Async uint8

// See package p2p.
const (
	AsyncDefault Async = iota
	AsyncAuto
	AsyncOn
	AsyncOff
)

// Inspect has a rank that can be looked into from outside, or not (`tagmatch dump`).
type Inspect uint8

// Values of Inspect.
const (
	InspectDefault Inspect = iota
	InspectOn
	InspectOff
)

// Config has the fields of p2p.Config that a variable may set, and Inspect, Watchdog and Trace,
// which are an operator's matter and no program's. What is zero was not given; in the result of
// Resolve only SpinLimit, which is then adaptive, and Logger may be.
type Config struct {
	Device, Transport          string
	Progress                   Progress
	JoinTimeout, SpinLimit     time.Duration
	EagerLimit                 int
	UnexpectedLimit, SendLimit int64
	MaxTags, OffloadMin        int
	Async                      Async
	PeerTimeout                time.Duration
	TLS, Ports                 string
	Logger                     *slog.Logger
	Inspect                    Inspect
	Watchdog                   string // see ParseWatchdog
	Trace                      string // see ParseTrace
}

// Setting is one setting in effect.
type Setting struct {
	Field  string // of Config
	Env    string // the environment variable
	Value  string
	Origin string // "program", the variable's name, or "default"
}

// Bounds and defaults.
const (
	maxSpin  = time.Second
	maxEager = 64 << 10
	maxLimit = 1 << 40
	maxTags  = 1 << 16
	maxPeer  = time.Hour

	minWatchdog = time.Second

	defaultSpin       = 50 * time.Microsecond
	defaultEager      = 32 << 10 // beyond it one copy by system call beats two through a ring
	defaultUnexpected = 64 << 20
	defaultSend       = 1 << 30
	defaultTags       = 1024
	defaultOffloadMin = 1 << 20 // smaller receives cost more in the device than it saves
)

// Faults returns every fault of the fields.
func (c Config) Faults() []error {
	var faults []error
	for _, v := range variables() {
		if value, allowed := v.fault(&c); allowed != "" {
			faults = append(faults, fmt.Errorf("%s is %v: %s", "Config."+v.field, value, allowed))
		}
	}
	return faults
}

// Resolve returns c with the variables and then the defaults filled in, where each value comes
// from, and every fault of fields and variables. The launcher's own variables are those of package
// bootstrap; Unknown finds misspelled names.
func (c Config) Resolve(getenv func(string) string) (Config, []Setting, []error) {
	faults := c.Faults()
	table := variables()
	settings := make([]Setting, len(table))
	for i, v := range table {
		settings[i] = Setting{Field: v.field, Env: v.env, Origin: "program"}
		if !v.unset(&c) {
			continue
		}
		settings[i].Origin = "default"
		if s := getenv(v.env); s != "" {
			settings[i].Origin = v.env
			scratch := c
			if err := v.parse(&scratch, s); err != nil {
				faults = append(faults, fmt.Errorf("%s is %q: %w", v.env, s, err))
			} else {
				c = scratch
			}
		}
	}
	c.fill()
	for i, v := range table {
		settings[i].Value = v.show(&c)
	}
	return c, settings, faults
}

// fill sets the defaults.
func (c *Config) fill() {
	c.Device, c.Transport = cmp.Or(c.Device, Auto), cmp.Or(c.Transport, Auto)
	c.Progress, c.Async = cmp.Or(c.Progress, ProgressAuto), cmp.Or(c.Async, AsyncAuto)
	c.JoinTimeout = cmp.Or(c.JoinTimeout, bootstrap.DefaultTimeout)
	c.PeerTimeout = cmp.Or(c.PeerTimeout, soft.DefaultPeerTimeout)
	c.EagerLimit = cmp.Or(c.EagerLimit, eagerOf(c.Device), defaultEager)
	c.UnexpectedLimit, c.SendLimit = cmp.Or(c.UnexpectedLimit, defaultUnexpected), cmp.Or(c.SendLimit, defaultSend)
	c.Inspect = cmp.Or(c.Inspect, InspectOn)
	c.MaxTags, c.OffloadMin = cmp.Or(c.MaxTags, defaultTags), cmp.Or(c.OffloadMin, defaultOffloadMin)
}

// AutoAsync reports what AsyncAuto comes to. With one thread for Go code the device could not work
// while the program computes.
func (c *Config) AutoAsync() bool {
	return c.Transport == Auto && c.Progress != ProgressManual && c.MaxTags >= 0 && runtime.GOMAXPROCS(0) > 1
}

// Security is the setting of TLS, which is valid.
func (c *Config) Security() secure.Setting {
	s, _ := secure.Parse(c.TLS)
	return s
}

var (
	allowedJoin  = "give a positive duration, 0 for the default, or -1 for no limit"
	allowedSpin  = fmt.Sprintf("give up to %v, 0 for the default, or -1 to park at once", maxSpin)
	allowedEager = fmt.Sprintf("give 1 to %d bytes, 0 for the default, or -1 for none", maxEager)
	allowedLimit = fmt.Sprintf("give 1 to %d bytes, 0 for the default, or -1 for none", maxLimit)
	allowedTags  = fmt.Sprintf("give 1 to %d, 0 for the default, or -1 for none", maxTags)
	allowedPeer  = fmt.Sprintf("give %v to %v, or 0 for the default", keepalive.Min, maxPeer)
	allowedMin   = fmt.Sprintf("give 1 to %d bytes, 0 for the default, or -1 for no minimum", maxLimit)
)

func checkTransport(name string) error { return known(name, Transports()) }

func known(name string, names []string) error {
	if !slices.Contains(names, name) {
		return errors.New(oneOf(names))
	}
	return nil
}

func oneOf(names []string) string { return "this build has " + strings.Join(names, ", ") }
