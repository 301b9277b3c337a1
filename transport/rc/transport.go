package rc

import (
	"fmt"
	"log/slog"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/check"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/transport/internal/links"
	"github.com/tagmatch/tagmatch/verbs"
)

// Mode is the transport's name, in Caps and in addresses.
const Mode = "rc"

// Config of New.
type Config struct {
	Device    verbs.Device // opened; the caller closes it after the transport
	Rank      int          // of this transport, 0 to Size-1
	Size      int          // ranks in the job
	MaxEager  int          // largest eager payload, bytes, equal on all ranks; 0: 32 KiB; below 0: 0
	SRQDepth  int          // receive buffers, shared by all peers, fewer where memory is short; 0: what suits the device, or 512
	SendDepth int          // send requests outstanding to each peer; 0: what suits the device, or 256, fewer where completion queues are short
	Job       string       // ranks of another job are refused
	Logger    *slog.Logger // gets a warning of each rank that does not answer; nil: silent
}

// Transport is the transport over RC queue pairs. See package transport for its methods.
type Transport struct {
	links.Links
	sink     transport.Sink
	maxEager int               // bytes
	hdr      transport.RndvHdr // the request that the sink is given, lent
	inv      *check.Sink
}

// New makes a transport; no peer is reachable before Connect.
func New(cfg Config, sink transport.Sink) (*Transport, error) {
	c := links.Config{Mode: Mode, Device: cfg.Device, Rank: cfg.Rank, Size: cfg.Size, MaxEager: cfg.MaxEager, SRQDepth: cfg.SRQDepth,
		SendDepth: cfg.SendDepth, Job: cfg.Job, Logger: cfg.Logger}
	if err := c.Fill(); err != nil {
		return nil, fmt.Errorf("transport/rc: %w", err)
	}
	t := &Transport{maxEager: c.MaxEager}
	t.sink, t.inv = check.New(sink, c.Device, c.Size)
	if err := links.Open(&t.Links, c, t.sink, t.inv); err != nil {
		return nil, err
	}
	return t, nil
}

// TagList is nil: matching is in software.
func (t *Transport) TagList() transport.TagList { return nil }

// Poll makes progress and calls the sink for what happened.
func (t *Transport) Poll() (int, error) {
	if invariant.Enabled {
		defer t.inv.Polls()()
	}
	if err := t.Begin(); err != nil {
		return 0, err
	}
	n, empty := t.Drain((*handler)(t))
	if t.EndDue() {
		return t.End(n, empty)
	}
	return n, nil
}

// handler is the transport as its device sees it.
type handler Transport

// Complete handles the completion of a receive, or of a send request.
func (h *handler) Complete(wc *verbs.WC) (again bool) {
	t := (*Transport)(h)
	if t.Usual(wc) {
		return t.Return(wc)
	}
	if !links.IsRecv(wc.WRID) {
		t.Sent(wc)
		return false
	}
	if rank, msg := t.Received(wc); rank >= 0 {
		if err := t.deliver(rank, wc, msg); err != nil {
			t.ProtocolError(rank, err)
		}
	}
	return t.Return(wc)
}

// deliver calls the method of the sink that a message is for. The error says how the message breaks
// the protocol; the sink was not called then.
func (t *Transport) deliver(rank int, wc *verbs.WC, msg []byte) error {
	if wc.Flags&verbs.WCFlagWithImm != 0 {
		return fmt.Errorf("a message with immediate data %#x", wc.Imm)
	}
	return format.Deliver(t.sink, rank, format.Opcode(msg), msg, t.maxEager, &t.hdr)
}

var _ transport.Transport = (*Transport)(nil)
