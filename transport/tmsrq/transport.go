package tmsrq

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/check"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/transport/internal/links"
	"github.com/tagmatch/tagmatch/transport/tmsrq/internal/hook"
	"github.com/tagmatch/tagmatch/verbs"
)

// Transport is the transport over RC queue pairs and a tag-matching SRQ. See package transport for
// its methods.
type Transport struct {
	links.Links
	cfg    Config // with defaults
	sink   transport.Sink
	inv    *check.Sink
	list   tagList               // not open where cfg.MaxTags is 0
	hdr    transport.RndvHdr     // the request that the sink is given, lent
	extra  [format.MaxExtra]byte // of hdr.Extra, where a request lies in memory that is to be overwritten
	rts    [format.MaxSmall]byte // a software rendezvous request that is sent
	hdrCap uint32                // largest rendezvous request that the device handles, bytes; 0: none
	// skipped is how many unexpected messages the device has counted and the sink never saw, modulo
	// 2^32: dropping them is handling them (TMO 5.1).
	skipped uint32

	grace   time.Duration // see unended
	overdue map[int]*overdue
}

func init() {
	hook.CountFrom = func(tr any, n uint16) { tr.(*Transport).skipped = uint32(n) }
	hook.Grace = func(tr any, d time.Duration) { tr.(*Transport).grace = d }
}

// New makes a transport; no peer is reachable before Connect.
func New(cfg Config, sink transport.Sink) (*Transport, error) {
	t := &Transport{cfg: cfg, grace: defaultGrace, overdue: map[int]*overdue{}}
	base, err := t.cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("transport/tmsrq: %w", err)
	}
	t.sink, t.inv = check.New(sink, cfg.Device, cfg.Size)
	if tm := cfg.Device.Attr().TM; tm.Flags&verbs.TMCapRC != 0 {
		t.hdrCap = tm.MaxRndvHdrSize
	}
	base.Free, base.Registered, base.Unended = t.free, t.list.registered, t.unended
	if err := links.Open(&t.Links, base, t.sink, t.inv); err != nil {
		return nil, err
	}
	if t.cfg.MaxTags > 0 {
		if err := t.list.open(t); err != nil {
			return nil, fmt.Errorf("transport/tmsrq: open: %w", errors.Join(err, t.Close()))
		}
	}
	return t, nil
}

// free ends what Close leaves of the list.
func (t *Transport) free() error {
	for _, o := range t.overdue {
		o.stop()
	}
	return t.list.close()
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
	if len(h.Extra) > format.MaxExtra {
		return fmt.Errorf("transport/tmsrq: a rendezvous header of %d bytes, the limit is %d", len(h.Extra), format.MaxExtra)
	}
	return t.SendMarked(to, t.rts[:putRTS(t.rts[:], h, t.cfg.Rank)])
}

var _ transport.Transport = (*Transport)(nil)
