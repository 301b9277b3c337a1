package links

import (
	"errors"
	"fmt"

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
	SRQDepth  int          // receive buffers, shared by all peers; 0: 512
	SendDepth int          // send requests outstanding to each peer; 0: 256, fewer in large jobs
	Job       string       // ranks of another job are refused

	// RecvQP adds a second queue pair for each rank, without a send queue: peers' messages arrive
	// there, and a tag-matching SRQ sends on it (TMO 1.3). The first then receives only what the
	// peer's second sends.
	RecvQP bool
	// With RecvQP: TM is the tag list of the SRQ, MaxNumTags 0: a basic SRQ; and MoreCQE is how
	// many completions there can be at once on top of CQE.
	TM      verbs.TMCap
	MoreCQE int
	// Free deregisters the transport's own memory: Close calls it when no queue pair and no SRQ is
	// left, and no more after that. It may be nil.
	Free func() error
}

const (
	defaultMaxEager  = 32 << 10
	defaultSRQDepth  = 512
	defaultSendDepth = 256
	minSendDepth     = 4
	maxMaxEager      = 1 << 20
	maxRdAtomic      = 16
)

// Fill sets the defaults of the fields before RecvQP, and reports all faults at once.
func (c *Config) Fill() error {
	if c.Device == nil {
		return errors.New("Config.Device is missing")
	}
	attr := c.Device.Attr()
	if c.MaxEager == 0 {
		c.MaxEager = defaultMaxEager
	}
	c.MaxEager = max(c.MaxEager, 0)
	if c.SRQDepth == 0 {
		c.SRQDepth = min(defaultSRQDepth, attr.MaxSRQWR)
	}
	if c.SendDepth == 0 {
		room := attr.MaxCQE - c.SRQDepth
		if c.RecvQP {
			room /= 2 // the other half is the list's
		}
		c.SendDepth = min(defaultSendDepth, attr.MaxQPWR, max(minSendDepth, room/max(c.Size, 1)-c.failures()))
	}
	var errs []error
	check := func(bad bool, f string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(f, args...))
		}
	}
	qps := c.Size
	if c.RecvQP {
		qps *= 2
	}
	check(c.Size < 1 || c.Size > format.MaxRanks, "Size is %d: use 1 to %d", c.Size, format.MaxRanks)
	check(c.Rank < 0 || c.Rank >= c.Size, "Rank is %d in a job of %d", c.Rank, c.Size)
	check(c.MaxEager > maxMaxEager, "MaxEager is %d: the most is %d", c.MaxEager, maxMaxEager)
	check(c.SRQDepth < 1 || c.SRQDepth > attr.MaxSRQWR, "SRQDepth is %d: the device takes 1 to %d", c.SRQDepth, attr.MaxSRQWR)
	check(c.SendDepth < minSendDepth || c.SendDepth > attr.MaxQPWR, "SendDepth is %d: the device takes %d to %d", c.SendDepth,
		minSendDepth, attr.MaxQPWR)
	check(c.CQE() > attr.MaxCQE, "%d ranks with SendDepth %d need a completion queue of %d, the device has %d", c.Size,
		c.SendDepth, c.CQE(), attr.MaxCQE)
	check(qps > attr.MaxQP, "%d ranks need %d queue pairs, the device has %d", c.Size, qps, attr.MaxQP)
	check(len(c.Job) > format.MaxJob, "Job has %d characters: the most is %d", len(c.Job), format.MaxJob)
	check(len(c.Device.Address()) > format.MaxDevice, "the device's address has %d bytes: the most is %d",
		len(c.Device.Address()), format.MaxDevice)
	return errors.Join(errs...)
}

// CQE is the most completions of send requests and receives that there can be at once: after an
// error every send request has one, signalled or not (TMO 8.2).
func (c *Config) CQE() int { return c.SRQDepth + c.Size*(c.SendDepth+c.failures()) }

// failures is how many completions of a rank there can be besides: with a list a queue pair that
// fails may have one that is of no buffer.
func (c *Config) failures() int {
	if c.RecvQP {
		return 2
	}
	return 0
}

// address returns the fields of an address that the configuration determines.
func (c *Config) address() format.Address {
	attr := c.Device.Attr()
	return format.Address{Mode: c.Mode, Job: c.Job, Rank: c.Rank, Size: c.Size, MaxEager: c.MaxEager,
		MTU: int(max(attr.MaxMTU, verbs.MTU256)), RdAtomic: min(attr.MaxQPRdAtom, maxRdAtomic), Device: c.Device.Address()}
}
