package links

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/check"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// Links are the links to all ranks of a job, this one included. Open makes them.
type Links struct {
	cfg  Config // with defaults
	sink transport.Sink
	inv  *check.Sink

	last  lastFrom
	usual verbs.WCOpcode // of a message that no entry of a tag list has matched

	losses
	objects
	roster

	maxRead uint64 // largest read, bytes
	inline  int    // largest message that is posted inline, bytes with headers
	depth   uint32 // of each send queue
	budget  budget

	// Work requests are made once and reused by every call. eager is always inline, small is for
	// all other messages and for long ones, marked for those of SendMarked; write is for grants and
	// for Drained. Those of messages and grants have two SGEs, of which the second is the payload.
	eager, small, marked, write, read verbs.SendWR
	eagerS, smallS                    [2]verbs.SGE // smallS is of small, marked and write
	readS                             [1]verbs.SGE
	eagerB                            [verbs.TMHSize]byte   // header in eager
	smallB                            [format.MaxSmall]byte // header, or all of a short message, in small
	chain                             chain

	ring    ring // receive buffers of the SRQ
	bounce  Pool // send buffers of messages that are too long for inline
	regions regions
	reads   reads
	grants  grants

	until   int   // calls of Begin until End does its rare work
	todo    bool  // End has work now: a grant, a loss or a fatal error
	fatal   error // why the transport as a whole cannot continue; nil while it can
	stopped bool  // the last Drain was ended by Enough
	heard   bool  // the last Drain has handled what was told
	warned  bool  // see warnShort
	closed  bool

	// What follows is not for messages.
	directory
	conn  connector
	lines lines
}

// lastFrom is what the last message was from, to spare the next one a search for it. Its link is
// up.
type lastFrom struct {
	qpn  uint32 // of the queue pair that received it; noQPN: there was none
	rank int
}

// noQPN is the number of no queue pair: those have 24 bits.
const noQPN = ^uint32(0)

// maxBounce is the most messages that can be outstanding of those that are too long for inline.
const maxBounce = 64

// Open makes the objects that cfg asks for; no rank is reachable before Connect. cfg is filled
// already (Config.Fill). With an error nothing is left open. sink and inv are those of check.New.
func Open(l *Links, cfg Config, sink transport.Sink, inv *check.Sink) error {
	attr := cfg.Device.Attr()
	*l = Links{cfg: cfg, sink: sink, inv: inv, conn: connector{l: l, number: rand.Uint64()}, lines: lines{l: l}, losses: losses{l: l}, last: lastFrom{qpn: noQPN},
		maxRead: attr.MaxMsgSize, inline: min(attr.MaxInline, format.BufferSize(cfg.MaxEager)), depth: uint32(cfg.SendDepth)}
	if l.usual = verbs.WCRecv; cfg.TM.MaxNumTags > 0 {
		l.usual = verbs.WCTMRecv
	}
	l.directory.init(&cfg)
	l.roster.init(cfg.Size)
	l.budget.open(cfg.budget, max(cfg.SendDepth/2, 1))
	l.regions.init(attr.MaxMR, cfg.Size)
	l.eager = verbs.SendWR{Opcode: verbs.WRSend, SGList: l.eagerS[:]}
	l.small = verbs.SendWR{Opcode: verbs.WRSend}
	l.marked = verbs.SendWR{Opcode: verbs.WRSendWithImm}
	l.write = verbs.SendWR{Opcode: verbs.WRRDMAWrite}
	l.read = verbs.SendWR{Opcode: verbs.WRRDMARead}
	l.eagerS[0].Data = l.eagerB[:]
	l.chain.init(min(l.inline-verbs.TMHSize, cfg.MaxEager))
	for _, left := cfg.Device.PollTold(); left; _, left = cfg.Device.PollTold() { // to an earlier transport
	}
	if err := l.open(); err != nil {
		return fmt.Errorf("transport/%s: open: %w", cfg.Mode, errors.Join(err, l.Close()))
	}
	return nil
}

// open makes what a transport has before it connects. Where memory that may be locked is short it
// does with fewer receives, whose buffers are most of that.
func (l *Links) open() error {
	c := &l.cfg
	var short error
	for wanted := c.SRQDepth; ; c.SRQDepth /= 2 {
		err := l.openWith(c)
		switch {
		case err == nil && short != nil:
			c.Logger.Warn("fewer receives are posted than suit the device, as memory is short", "rank", c.Rank, "device", c.Device.Name(),
				"receives", c.SRQDepth, "wanted", wanted, "err", short)
			return nil
		case !errors.Is(err, syscall.ENOMEM), c.SRQDepth/2 < leastReceives:
			return err
		}
		if failed := l.closeOpened(); failed != nil {
			return errors.Join(err, failed)
		}
		short = err
	}
}

// closeOpened undoes openWith.
func (l *Links) closeOpened() error {
	err := errors.Join(l.closeQueues(), l.ring.close(), l.bounce.Close(), l.closeDomain())
	l.objects, l.ring, l.bounce = objects{}, ring{}, Pool{}
	return err
}

func (l *Links) openWith(c *Config) (err error) {
	if err = l.objects.open(c, l.inline); err != nil {
		return err
	}
	size := format.BufferSize(c.MaxEager)
	if err = l.ring.open(l.pd, l.srq, c.SRQDepth, size); err != nil {
		return err
	}
	if size > l.inline {
		if err = l.bounce.Open(l.pd, min(c.SendDepth, maxBounce), size, 0); err != nil {
			return err
		}
	}
	if c.SRQDepth/2 < leastReceives {
		return nil
	}
	// As much again is to be left, for connections and long messages. Only registering it tells: a
	// limit counts the same pages twice, and what others have locked is not known here.
	mr, err := l.pd.RegMR(l.ring.mem, 0)
	if err != nil {
		return err
	}
	return mr.Dereg()
}

// Caps returns the capabilities of the transport.
func (l *Links) Caps() transport.Caps {
	attr := l.cfg.Device.Attr()
	return transport.Caps{Name: l.cfg.Mode, Device: l.cfg.Device.Name(), MaxEager: l.cfg.MaxEager, MaxCtrl: format.MaxCtrl,
		MaxRead: attr.MaxMsgSize, MaxHdr: format.MaxExtra, Revoke: attr.ReadFaults}
}

var errClosed = errors.New("transport: closed")

// Close ends all connections and frees everything, whatever fails on the way: queue pairs, SRQ,
// queues, then memory (scenario 55 of TMO 7.2).
func (l *Links) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	if l.fatal == nil {
		l.fatal = errClosed
	}
	l.inv.Closes()
	l.fresh.state, l.fresh.err = linkLost, errClosed
	l.conn.close()
	var errs []error
	for _, p := range l.made {
		if err := p.close(); err != nil {
			errs = append(errs, fmt.Errorf("rank %d: %w", p.rank, err))
		}
	}
	errs = append(errs, l.closeQueues(), l.ring.close(), l.bounce.Close(), l.closeCells(), l.reads.close())
	if l.cfg.Free != nil {
		errs = append(errs, l.cfg.Free())
	}
	errs = append(errs, l.closeDomain())
	return errors.Join(errs...)
}
