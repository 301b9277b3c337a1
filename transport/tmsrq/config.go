package tmsrq

import (
	"fmt"
	"log/slog"

	"github.com/tagmatch/tagmatch/transport/internal/links"
	"github.com/tagmatch/tagmatch/verbs"
)

// Mode is the transport's name, in Caps and in addresses.
const Mode = "tmsrq"

// Config of New.
type Config struct {
	Device    verbs.Device // opened; the caller closes it after the transport
	Rank      int          // of this transport, 0 to Size-1
	Size      int          // ranks in the job
	MaxEager  int          // largest eager payload, bytes, equal on all ranks; 0: 32 KiB; below 0: 0
	SRQDepth  int          // receive buffers for messages that the device does not match, 48 to 2^14, others are corrected, fewer where memory is short; 0: what suits the device, or 512
	SendDepth int          // send requests outstanding to each peer; 0: what suits the device, or 256, fewer where completion queues are short
	Job       string       // ranks of another job are refused
	Logger    *slog.Logger // gets a warning of each rank that does not answer; nil: silent
	MaxTags   int          // receives that the device's list holds; 0: 1024; the device's limit caps it; negative: no list
}

const (
	defaultMaxTags = 1024
	maxMaxTags     = 1 << 16

	// minDepth bounds Config.SRQDepth: a known device matches only while 33 unexpected buffers are
	// posted (TMO 1.2); those that wait to be posted in one chain come on top.
	minDepth = 48
	maxDepth = 1 << 14 // V15: the counts of TMO 5.1 then never differ by 2^16

	maxBounceBytes = 64 << 20 // of all bounce buffers, unless minBounce need more
	minBounce      = 16
)

// fill sets the defaults and reports everything that is wrong. It returns what the links are opened
// with.
func (c *Config) fill() (links.Config, error) {
	if c.SRQDepth > 0 {
		c.SRQDepth = min(max(c.SRQDepth, minDepth), maxDepth)
	}
	base := links.Config{Mode: Mode, Device: c.Device, Rank: c.Rank, Size: c.Size, MaxEager: c.MaxEager, SRQDepth: c.SRQDepth,
		SendDepth: c.SendDepth, Job: c.Job, Logger: c.Logger, RecvQP: true}
	if err := base.Fill(); err != nil {
		return base, err
	}
	c.MaxEager, c.SRQDepth, c.SendDepth = base.MaxEager, base.SRQDepth, base.SendDepth
	err := c.fillTags(&base)
	base.MoreCQE = c.moreCQE()
	if c.MaxTags > 0 {
		base.TM = verbs.TMCap{MaxNumTags: uint32(c.MaxTags), MaxOps: uint32(c.maxOps())}
	}
	return base, err
}

// fillTags sets MaxTags.
func (c *Config) fillTags(base *links.Config) error {
	tm := c.Device.Attr().TM
	matches := tm.Flags&verbs.TMCapRC != 0 // never MaxNumTags alone (TMO 1.1)
	switch {
	case c.MaxTags < 0:
		c.MaxTags = 0
	case !matches:
		why := c.Device.Attr().NoTM
		if why != "" {
			why = " (" + why + ")"
		}
		return fmt.Errorf("the device has no tag matching%s: use transport rc, or a negative MaxTags, which leaves the list out", why)
	case c.MaxTags > maxMaxTags:
		return fmt.Errorf("MaxTags is %d: the most is %d", c.MaxTags, maxMaxTags)
	case c.MaxTags == 0:
		c.MaxTags = defaultMaxTags
	}
	if matches {
		c.MaxTags = min(c.MaxTags, int(tm.MaxNumTags))
	}
	// The completion queue has to hold the worst case (V15): where it cannot, the list is shorter.
	for c.MaxTags > 0 && base.CQE()+c.moreCQE() > c.Device.Attr().MaxCQE {
		c.MaxTags /= 2
	}
	return nil
}

// maxOps is the depth of the queue of list operations: an ADD and a DEL for each receive, and SYNCs
// (TMO 3.4).
func (c *Config) maxOps() int { return min(2*c.MaxTags+2, int(c.Device.Attr().TM.MaxOps)) }

// moreCQE is how many completions there can be at once besides those of send requests and of
// buffers (TMO 1.4): MATCH and DATA_VALID for each entry, and one for each list operation.
func (c *Config) moreCQE() int {
	if c.MaxTags == 0 {
		return 0
	}
	return 2*c.MaxTags + c.maxOps()
}

// bounceSize is the size of a bounce buffer, bytes: it holds whatever the device puts there for a
// matched message of at most MaxEager bytes.
func (c *Config) bounceSize() int { return (max(c.MaxEager, minLanding) + 63) &^ 63 }

// bounces is the number of bounce buffers.
func (c *Config) bounces() int {
	return min(c.MaxTags, max(minBounce, maxBounceBytes/c.bounceSize()))
}
