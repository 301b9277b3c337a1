package links

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// Config is what a transport opens Links with.
type Config struct {
	Mode      string       // the transport's name, in Caps, addresses and errors
	Device    verbs.Device // opened; the caller closes it after the transport
	Rank      int          // of this transport, 0 to Size-1
	Size      int          // ranks in the job
	MaxEager  int          // largest eager payload, bytes, equal on all ranks; 0: 32 KiB; below 0: 0
	SRQDepth  int          // receive buffers, shared by all peers, fewer where memory is short; 0: what suits the device, or 512
	SendDepth int          // send requests outstanding to each peer; 0: what suits the device, or 256, fewer where completion queues are short
	Job       string       // ranks of another job are refused
	Logger    *slog.Logger // nil: silent

	// RecvQP adds a second queue pair for each rank, without a send queue: peers' messages arrive
	// there, and a tag-matching SRQ sends on it (TMO 1.3). The first then receives only what the
	// peer's second sends.
	RecvQP bool
	// With RecvQP: TM is the tag list of the SRQ, MaxNumTags 0: a basic SRQ; and MoreCQE is how
	// many completions there can be at once on top of CQE.
	TM      verbs.TMCap
	MoreCQE int
	// Unended ends operations of DeferLoss, if it can, and returns how many: in each poll while the
	// link to their rank is lost. empty says that no completions are left. It may be nil.
	Unended func(rank int, empty bool) int
	// Free deregisters the transport's own memory: Close calls it when no queue pair and no SRQ is
	// left, and no more after that. It may be nil.
	Free func() error
	// Registered counts the regions of the transport's own memory and their bytes, and reports
	// whether one of them is given back when a transfer ends that is under way. It may be nil.
	Registered func() (regions, bytes int, ending bool)

	budget int // send requests outstanding to all peers together, see type budget
}

const (
	defaultMaxEager  = 32 << 10
	defaultSRQDepth  = 512
	defaultSendDepth = 256
	minSendDepth     = 4
	leastReceives    = 128 // see Links.open
	maxBudget        = 8192
	maxFailing       = 128 // see Config.failures
	maxMaxEager      = 1 << 20
	maxRdAtomic      = 16
)

// Fill sets the defaults of the fields before RecvQP, and reports all faults at once.
func (c *Config) Fill() error {
	if c.Device == nil {
		return errors.New("Config.Device is missing")
	}
	attr := c.Device.Attr()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxEager == 0 {
		c.MaxEager = defaultMaxEager
	}
	c.MaxEager = max(c.MaxEager, 0)
	if c.SRQDepth == 0 {
		c.SRQDepth = min(cmp.Or(attr.Suits.Receives, defaultSRQDepth), attr.MaxSRQWR, attr.MaxCQE/4)
	}
	c.fillBudget(&attr)
	var errs []error
	check := func(bad bool, f string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(f, args...))
		}
	}
	check(c.Size < 1 || c.Size > format.MaxRanks, "Size is %d: use 1 to %d", c.Size, format.MaxRanks)
	check(c.Rank < 0 || c.Rank >= c.Size, "Rank is %d in a job of %d", c.Rank, c.Size)
	check(c.MaxEager > maxMaxEager, "MaxEager is %d: the most is %d", c.MaxEager, maxMaxEager)
	check(c.SRQDepth < 1 || c.SRQDepth > attr.MaxSRQWR, "SRQDepth is %d: the device takes 1 to %d", c.SRQDepth, attr.MaxSRQWR)
	check(c.SendDepth < minSendDepth || c.SendDepth > attr.MaxQPWR, "SendDepth is %d: the device takes %d to %d", c.SendDepth,
		minSendDepth, attr.MaxQPWR)
	check(c.CQE() > attr.MaxCQE, "SRQDepth %d and SendDepth %d need a completion queue of %d, the device has %d", c.SRQDepth,
		c.SendDepth, c.CQE(), attr.MaxCQE)
	check(len(c.Job) > format.MaxJob, "Job has %d characters: the most is %d", len(c.Job), format.MaxJob)
	check(len(c.Device.Address()) > format.MaxDevice, "the device's address has %d bytes: the most is %d",
		len(c.Device.Address()), format.MaxDevice)
	return errors.Join(errs...)
}

// fillBudget sets the budget, and SendDepth if it is 0: a peer that takes nothing leaves the others
// half of the budget.
func (c *Config) fillBudget(attr *verbs.DeviceAttr) {
	room := attr.MaxCQE - c.SRQDepth - c.failures()
	if c.RecvQP {
		room /= 2 // the other half is the list's
	}
	c.budget = min(maxBudget, room)
	if c.SendDepth == 0 {
		c.SendDepth = min(cmp.Or(attr.Suits.Sends, defaultSendDepth), attr.MaxQPWR, max(minSendDepth, c.budget/2))
	}
	c.budget = max(c.budget, c.SendDepth)
}

// CQE is the most completions of send requests and receives that there can be at once: after an
// error every send request has one, signalled or not (TMO 8.2).
func (c *Config) CQE() int { return c.SRQDepth + c.budget + c.failures() }

// failures is how many completions there can be besides: with a list a queue pair that fails may
// have one that is of no buffer. Only a peer that breaks the protocol causes it, so that not more
// than so many do between two polls.
func (c *Config) failures() int {
	if c.RecvQP {
		return 2 * min(max(c.Size, 0), maxFailing)
	}
	return 0
}

// address returns the fields of an address that the configuration determines.
func (c *Config) address() format.Address {
	return format.Address{Mode: c.Mode, Job: c.Job, Rank: c.Rank, Size: c.Size, MaxEager: c.MaxEager, Device: c.Device.Address()}
}
