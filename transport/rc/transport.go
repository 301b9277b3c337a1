package rc

import (
	"errors"
	"fmt"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// Mode is the transport's name, in Caps and in addresses.
const Mode = "rc"

// Config of New.
type Config struct {
	Device    verbs.Device // opened; the caller closes it after the transport
	Rank      int
	Size      int
	MaxEager  int    // largest eager payload, bytes, equal on all ranks; 0: 32 KiB; below 0: 0
	SRQDepth  int    // receive buffers, shared by all peers; 0: 512
	SendDepth int    // send requests outstanding to each peer; 0: 256, fewer in large jobs
	Job       string // ranks of another job are refused
}

const (
	defaultMaxEager  = 32 << 10
	defaultSRQDepth  = 512
	defaultSendDepth = 256
	minSendDepth     = 4
	maxMaxEager      = 1 << 20
	maxRdAtomic      = 16
)

// Fill sets the defaults and reports all faults at once. qps is the number of queue pairs for each
// rank.
func (c *Config) Fill(qps int) error {
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
		c.SendDepth = min(defaultSendDepth, attr.MaxQPWR, max(minSendDepth, (attr.MaxCQE-c.SRQDepth)/max(c.Size, 1)))
	}
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Size < 1 || c.Size > maxRanks, "Size is %d: use 1 to %d", c.Size, maxRanks)
	check(c.Rank < 0 || c.Rank >= c.Size, "Rank is %d in a job of %d", c.Rank, c.Size)
	check(c.MaxEager > maxMaxEager, "MaxEager is %d: the most is %d", c.MaxEager, maxMaxEager)
	check(c.SRQDepth < 1 || c.SRQDepth > attr.MaxSRQWR, "SRQDepth is %d: the device takes 1 to %d", c.SRQDepth, attr.MaxSRQWR)
	check(c.SendDepth < minSendDepth || c.SendDepth > attr.MaxQPWR, "SendDepth is %d: the device takes %d to %d", c.SendDepth,
		minSendDepth, attr.MaxQPWR)
	check(c.cqe() > attr.MaxCQE, "%d ranks with SendDepth %d need a completion queue of %d, the device has %d", c.Size,
		c.SendDepth, c.cqe(), attr.MaxCQE)
	check(c.Size*qps > attr.MaxQP, "%d ranks need %d queue pairs, the device has %d", c.Size, c.Size*qps, attr.MaxQP)
	check(len(c.Job) > maxJob, "Job has %d characters: the most is %d", len(c.Job), maxJob)
	check(len(c.Device.Address()) > maxDeviceAddr, "the device's address has %d bytes: the most is %d",
		len(c.Device.Address()), maxDeviceAddr)
	return errors.Join(errs...)
}

// cqe is the most completions there can be: after an error every request has one, signalled or not
// (TMO 8.2).
func (c *Config) cqe() int { return c.SRQDepth + c.Size*c.SendDepth }

// Transport is the transport over RC queue pairs. See package transport for its methods.
type Transport struct {
	Links
	cfg     Config
	pd      verbs.PD
	channel verbs.CompChannel
	cq      verbs.CQ
	srq     verbs.SRQ
	ring    *Ring
	wcs     [pollBatch]verbs.WC
	rndv    transport.RndvHdr
	until   int // polls until the next check for asynchronous events
	broken  error
	closed  bool
}

// New makes a transport; no peer is reachable before Connect.
func New(cfg Config, sink transport.Sink) (*Transport, error) {
	if err := cfg.Fill(1); err != nil {
		return nil, fmt.Errorf("transport/rc: %w", err)
	}
	if invariant.Enabled {
		sink = Check(sink, cfg.Device, cfg.Size)
	}
	t := &Transport{cfg: cfg}
	if err := t.open(sink); err != nil {
		return nil, fmt.Errorf("transport/rc: open: %w", errors.Join(err, t.Close()))
	}
	return t, nil
}

func (t *Transport) open(sink transport.Sink) (err error) {
	dev := t.cfg.Device
	if t.channel, err = dev.CreateCompChannel(); err != nil {
		return err
	}
	if t.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if t.cq, err = dev.CreateCQ(verbs.CQInitAttr{CQE: t.cfg.cqe(), Channel: t.channel}); err != nil {
		return err
	}
	init := verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: uint32(t.cfg.SRQDepth), MaxSGE: 1}}
	if t.srq, err = t.pd.CreateSRQ(&init); err != nil {
		return err
	}
	if t.ring, err = NewRing(t.pd, t.srq, t.cfg.SRQDepth, BufferSize(t.cfg.MaxEager)); err != nil {
		return err
	}
	return NewLinks(&t.Links, LinksConfig{Self: SelfAddress(Mode, &t.cfg), Device: dev, PD: t.pd, CQ: t.cq, SRQ: t.srq,
		SendDepth: t.cfg.SendDepth, Sink: sink})
}

// SelfAddress returns the fields of an address that cfg determines.
func SelfAddress(mode string, cfg *Config) Address {
	attr := cfg.Device.Attr()
	return Address{Mode: mode, Job: cfg.Job, Rank: cfg.Rank, Size: cfg.Size, MaxEager: cfg.MaxEager,
		MTU: int(max(attr.MaxMTU, verbs.MTU256)), RdAtomic: min(attr.MaxQPRdAtom, maxRdAtomic), Device: cfg.Device.Address()}
}

// Caps returns what the transport can do.
func (t *Transport) Caps() transport.Caps {
	attr := t.cfg.Device.Attr()
	return transport.Caps{Name: Mode, Device: t.cfg.Device.Name(), MaxEager: t.cfg.MaxEager, MaxCtrl: MaxCtrl,
		MaxRead: attr.MaxMsgSize, MaxHdr: MaxExtra, Revoke: attr.ReadFaults}
}

// TagList is nil: matching is in software.
func (t *Transport) TagList() transport.TagList { return nil }

// Close ends all connections and frees everything, whatever fails on the way.
func (t *Transport) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	if t.broken == nil {
		t.broken = errClosed
	}
	errs := []error{t.CloseQPs()}
	if t.srq != nil {
		errs = append(errs, t.srq.Destroy())
	}
	if t.cq != nil {
		errs = append(errs, t.cq.Destroy())
	}
	errs = append(errs, t.Links.Close())
	if t.ring != nil && t.ring.mr != nil {
		errs = append(errs, t.ring.Close())
	}
	if t.pd != nil {
		errs = append(errs, t.pd.Dealloc())
	}
	if t.channel != nil {
		errs = append(errs, t.channel.Close())
	}
	return errors.Join(errs...)
}

var _ transport.Transport = (*Transport)(nil)
