package tmsrq

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/verbs"
)

// Mode is the transport's name, in Caps and in addresses.
const Mode = "tmsrq"

// Config of New. What is not explained here is as in rc.Config.
type Config struct {
	Device    verbs.Device
	Rank      int
	Size      int
	MaxEager  int
	SRQDepth  int // buffers for messages that the device does not match; at least minDepth are made, at most 2^14
	SendDepth int
	Job       string
	MaxTags   int // receives that the device's list holds; 0: 1024; the device's limit caps it; negative: no list

	Handled uint16 // where the device's counts of unexpected messages start (TMO 5.1): 0, but in tests of their wrapping
}

const (
	defaultMaxTags = 1024
	maxMaxTags     = 1 << 16

	// minDepth: a known device matches only while 33 unexpected buffers are posted (TMO 1.2); those
	// that wait to go back in one chain come on top.
	minDepth = 48
	maxDepth = 1 << 14 // V15: the counts of TMO 5.1 then never differ by 2^16

	maxBounceBytes = 64 << 20
	minBounce      = 16
)

// fill sets the defaults and reports everything that is wrong.
func (c *Config) fill() error {
	if c.Device != nil && c.SRQDepth > 0 {
		c.SRQDepth = max(c.SRQDepth, minDepth)
	}
	base := rc.Config{Device: c.Device, Rank: c.Rank, Size: c.Size, MaxEager: c.MaxEager, SRQDepth: c.SRQDepth,
		SendDepth: c.SendDepth, Job: c.Job}
	if err := base.Fill(2); err != nil {
		return err
	}
	c.MaxEager, c.SRQDepth, c.SendDepth = base.MaxEager, min(base.SRQDepth, maxDepth), base.SendDepth
	return c.fillTags()
}

func (c *Config) fillTags() error {
	tm := c.Device.Attr().TM
	matches := tm.Flags&verbs.TMCapRC != 0 // never MaxNumTags alone (TMO 1.1)
	switch {
	case c.MaxTags < 0:
		c.MaxTags = 0
	case !matches:
		return errors.New("the device has no tag matching: use transport rc, or a negative MaxTags, which leaves the list out")
	case c.MaxTags > maxMaxTags:
		return fmt.Errorf("MaxTags is %d: the most is %d", c.MaxTags, maxMaxTags)
	case c.MaxTags == 0:
		c.MaxTags = defaultMaxTags
	}
	if matches {
		c.MaxTags = min(c.MaxTags, int(tm.MaxNumTags))
	}
	// The completion queue has to hold the worst case (V15); where the device's are small, the list
	// is.
	for c.MaxTags > 0 && c.cqe() > c.Device.Attr().MaxCQE {
		c.MaxTags /= 2
	}
	return nil
}

// maxOps is the depth of the queue of list operations: for each receive one that puts it in and one
// that takes it out, SYNCs besides (TMO 3.4).
func (c *Config) maxOps() int { return min(2*c.MaxTags+2, int(c.Device.Attr().TM.MaxOps)) }

// cqe is how many completions of receives and list operations there can be at once (TMO 1.4): one
// for each posted buffer, MATCH and DATA_VALID for each entry, one for each list operation; and one
// for each queue pair that fails.
func (c *Config) cqe() int { return c.SRQDepth + 2*c.MaxTags + c.maxOps() + 2*c.Size }

// bounceSize is what a bounce buffer needs to take whatever a matched message of at most MaxEager
// bytes puts there.
func (c *Config) bounceSize() int { return (max(c.MaxEager, minLanding) + 63) &^ 63 }

// bounces is how many bounce buffers there are.
func (c *Config) bounces() int {
	return min(c.MaxTags, max(minBounce, maxBounceBytes/c.bounceSize()))
}
