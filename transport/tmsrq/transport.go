package tmsrq

import (
	"errors"
	"fmt"
	"math"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/rc"
	"github.com/tagmatch/tagmatch/verbs"
)

// Transport is the transport over RC queue pairs and a tag-matching SRQ. See package transport for
// its methods.
type Transport struct {
	rc.Links
	cfg     Config
	sink    transport.Sink
	pd      verbs.PD
	channel verbs.CompChannel
	scq     verbs.CQ // completions of sends
	rcq     verbs.CQ // of receives and list operations; the SRQ's own (TMO 1.2)
	srq     verbs.SRQ
	ring    *rc.Ring
	list    tagList
	wcs     [pollBatch]verbs.WC
	swcs    [pollBatch]verbs.WC
	hdr     transport.RndvHdr
	extra   [rc.MaxExtra]byte
	rts     [verbs.TMHSize + maxRTS]byte
	hdrCap  uint32 // largest rendezvous request that the device handles
	skipped uint32 // unexpected messages that the device counted and the sink never saw
	until   int    // polls until the device's events are looked at
	broken  error
	closed  bool
	inv     *rc.Checks
}

// New makes a transport; no peer is reachable before Connect.
func New(cfg Config, sink transport.Sink) (*Transport, error) {
	if err := cfg.fill(); err != nil {
		return nil, fmt.Errorf("transport/tmsrq: %w", err)
	}
	t := &Transport{cfg: cfg}
	if invariant.Enabled {
		t.inv = rc.Check(sink, cfg.Device, cfg.Size)
		sink = t.inv
	}
	t.sink = sink
	if err := t.open(sink); err != nil {
		return nil, fmt.Errorf("transport/tmsrq: open: %w", errors.Join(err, t.Close()))
	}
	return t, nil
}

func (t *Transport) open(sink transport.Sink) (err error) {
	dev, cfg := t.cfg.Device, &t.cfg
	t.skipped = uint32(cfg.Handled)
	if t.channel, err = dev.CreateCompChannel(); err != nil {
		return err
	}
	if t.pd, err = dev.AllocPD(); err != nil {
		return err
	}
	if t.scq, err = dev.CreateCQ(verbs.CQInitAttr{CQE: cfg.Size * cfg.SendDepth, Channel: t.channel}); err != nil {
		return err
	}
	if err = t.openSRQ(); err != nil {
		return err
	}
	if t.ring, err = rc.NewRing(t.pd, t.srq, cfg.SRQDepth, rc.BufferSize(cfg.MaxEager)); err != nil {
		return err
	}
	base := rc.Config{Device: dev, Rank: cfg.Rank, Size: cfg.Size, MaxEager: cfg.MaxEager, Job: cfg.Job}
	if err = rc.NewLinks(&t.Links, rc.LinksConfig{Self: rc.SelfAddress(Mode, &base), Device: dev, PD: t.pd, CQ: t.scq, RecvCQ: t.rcq,
		SRQ: t.srq, SendDepth: cfg.SendDepth, Sink: sink, Twin: true}); err != nil {
		return err
	}
	if cfg.MaxTags == 0 {
		return nil
	}
	return t.list.open(t)
}

// openSRQ makes the SRQ and its completion queue. Without a list it is a basic one: what comes in
// is the same, none of it matched.
func (t *Transport) openSRQ() (err error) {
	cq := verbs.CQInitAttr{CQE: t.cfg.cqe(), Channel: t.channel}
	init := verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: uint32(t.cfg.SRQDepth), MaxSGE: 1}}
	tm := t.cfg.Device.Attr().TM
	if tm.Flags&verbs.TMCapRC != 0 {
		t.hdrCap = tm.MaxRndvHdrSize
		if tm.MaxNumTags > 0 && t.cfg.MaxTags > 0 {
			cq.WCFlags = verbs.WCExWithTMInfo
			init.Mask = verbs.SRQInitType | verbs.SRQInitPD | verbs.SRQInitCQ | verbs.SRQInitTM
			init.Type = verbs.SRQTypeTM
			init.TM = verbs.TMCap{MaxNumTags: uint32(t.cfg.MaxTags), MaxOps: uint32(t.cfg.maxOps())}
		}
	}
	if t.rcq, err = t.cfg.Device.CreateCQ(cq); err != nil {
		return err
	}
	init.CQ = t.rcq
	t.srq, err = t.pd.CreateSRQ(&init)
	return err
}

// Caps says what the transport can do.
func (t *Transport) Caps() transport.Caps {
	attr := t.cfg.Device.Attr()
	return transport.Caps{Name: Mode, Device: t.cfg.Device.Name(), MaxEager: t.cfg.MaxEager, MaxCtrl: rc.MaxCtrl,
		MaxRead: attr.MaxMsgSize, MaxHdr: rc.MaxExtra, Revoke: attr.ReadFaults}
}

// TagList is the device's list, nil where there is none.
func (t *Transport) TagList() transport.TagList {
	if t.cfg.MaxTags == 0 {
		return nil
	}
	return &t.list
}

// SendRndv sends a rendezvous request: to be handled by the peer's device where the source can be
// told from the tag and the device's header holds the length, else by its software.
func (t *Transport) SendRndv(to int, h *transport.RndvHdr) error {
	size := verbs.TMHSize + verbs.RVHSize + 8 + len(h.Extra)
	if h.Tag&packedTag != 0 && h.Len <= math.MaxUint32 && size <= int(t.hdrCap) {
		return t.Links.SendRndv(to, h)
	}
	if len(h.Extra) > rc.MaxExtra {
		return fmt.Errorf("transport/tmsrq: a rendezvous header of %d bytes, the limit is %d", len(h.Extra), rc.MaxExtra)
	}
	return t.SendMarked(to, t.rts[:putRTS(t.rts[:], h, t.cfg.Rank)])
}

// Close ends all connections and frees everything, whatever fails on the way (scenario 55 of TMO
// 7.2: queue pairs, SRQ, queues).
func (t *Transport) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	if t.broken == nil {
		t.broken = errors.New("transport/tmsrq: closed")
	}
	errs := []error{t.CloseQPs()}
	if t.srq != nil {
		errs = append(errs, t.srq.Destroy())
	}
	for _, cq := range []verbs.CQ{t.scq, t.rcq} {
		if cq != nil {
			errs = append(errs, cq.Destroy())
		}
	}
	errs = append(errs, t.Links.Close(), t.list.close())
	if t.ring != nil {
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
