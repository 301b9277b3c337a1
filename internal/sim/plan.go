package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tagmatch/tagmatch/internal/contexts"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// Plan is all that a run depends on.
type Plan struct {
	Seed   uint64 // of the wires' and devices' random numbers, and of NewPlan
	Params Params
	Steps  []Step
}

// Params are the parameters of a world.
type Params struct {
	Ranks     int
	Transport string // "rc" or "tmsrq"
	Unmet     bool   `json:",omitempty"` // no ranks are connected before the first step
	Mux       bool   // two hosts, each with its own fabric; a second device connects them
	Tags      int    // receives that the list holds, 0: no list
	Vectors   bool   // every second send and receive that does not block is one of several parts

	MaxEager        int // bytes, below 0: none
	OffloadMin      int // as in progress.Config
	UnexpectedLimit int64
	SRQDepth        int
	SendDepth       int
	MaxInline       int   // of the devices, 0: enough for everything
	Refuse          int   // most refusals of sends and reads in a row for want of room
	RefuseOps       int   // the same for ADDs and SYNCs
	MaxRead         int   `json:",omitempty"` // bytes of one read, 0: no bound
	SendLimit       int64 `json:",omitempty"` // as in progress.Config

	Comms []Members `json:",omitempty"` // the ranks of each

	Fabric   softtest.FabricOptions
	TM       softtest.TM
	NIC      bool `json:",omitempty"` // the devices behave as NICs do (softtest.NIC)
	CloseMid bool // close after the last step, with operations in progress
}

// Op says what a step does.
type Op string

// The steps. Indices in a step are taken modulo the number of objects, so that a plan keeps its
// meaning without some of its steps.
const (
	OpSend   Op = "send"   // Rank sends to Peer
	OpSsend  Op = "ssend"  // the same, synchronously
	OpRecv   Op = "recv"   // Rank receives from Peer, or from any source, depending on Mask
	OpProbe  Op = "probe"  // Rank probes, and if it does not block receives what it has found
	OpTake   Op = "take"   // Rank takes a message by a matched probe; a call receives it too
	OpUse    Op = "use"    // Rank receives the N-th message that it has taken
	OpDrop   Op = "drop"   // Rank discards that
	OpCancel Op = "cancel" // Rank cancels its N-th unfinished operation
	OpPoll   Op = "poll"   // the program of Rank polls N times
	OpStep   Op = "step"   // the device of Rank works N times without its program
	OpBreak  Op = "break"  // the link between Rank and Peer breaks
	OpKill   Op = "kill"   // Rank dies
	OpLose   Op = "lose"   // the launcher tells Rank that Peer is lost
	OpAck    Op = "ack"    // Rank acknowledges the losses that it knows of, or the N-th of them, from 1
	OpFlush  Op = "flush"  // Rank calls Flush
	OpExpire Op = "expire" // the context of Rank's call ends
	OpAbort  Op = "abort"  // Rank aborts the job
	OpClose  Op = "close"  // Rank closes Comm
	OpOpen   Op = "open"   // Comm is made again, if all have closed it
)

var ops = []Op{OpSend, OpSsend, OpRecv, OpProbe, OpTake, OpUse, OpDrop, OpCancel, OpPoll, OpStep, OpBreak, OpKill, OpLose, OpAck, OpFlush, OpExpire, OpAbort, OpClose, OpOpen}

// Step is one decision of the scheduler.
type Step struct {
	Do   Op
	Rank int
	Peer int    `json:",omitempty"`
	Tag  uint64 `json:",omitempty"` // number, see Step.tag
	Comm int    `json:",omitempty"` // number of a Comm, from 1; 0: none
	Raw  bool   `json:",omitempty"` // the tag is the program's, else packed as a Comm's; without Comm only
	Mask Mask   `json:",omitempty"`
	Call bool   `json:",omitempty"` // it blocks, in a second goroutine if Rank is in a call
	Size int    `json:",omitempty"` // bytes of the message, or of the buffer
	N    int    `json:",omitempty"`
}

// Mask says which parts of the tag a receive compares.
type Mask string

// The masks.
const (
	MaskExact  Mask = ""       // source and number
	MaskSource Mask = "source" // any number
	MaskNumber Mask = "number" // any source
	MaskParity Mask = "parity" // the source, and the lowest bit of the number
	MaskAny    Mask = "any"
)

var masks = []Mask{MaskExact, MaskSource, MaskNumber, MaskParity, MaskAny}

// Tags are laid out as in p2p: packed 1 | context 11 | source 20 | tag 32, or the program's own,
// here source 8 | number 8. The tag is the number of its Comm, from commShift on, and number.
const (
	packedBit    = 1 << 63
	contextShift = 52
	commShift    = 16
	sourceShift  = 32
	sourceBits   = uint64(1<<20-1) << sourceShift
	numberBits   = 1<<32 - 1
	rawShift     = 8
	rawSource    = 0xff << rawShift
	rawNumber    = 0xff
)

// tag is the tag of a message of rank src: in a Comm, or else in context 0 or raw.
func (s *Step) tag(src int, c *comm) uint64 {
	switch {
	case c != nil:
		return contexts.Base(c.context) | uint64(src)<<sourceShift | uint64(c.number)<<commShift | s.Tag
	case s.Raw:
		return uint64(src)<<rawShift | s.Tag
	}
	return contexts.Base(contexts.World) | uint64(src)<<sourceShift | s.Tag
}

// bits returns the mask, and whether it leaves the source open. Only then may it match both raw and
// Comm tags: a receive from one source must not match messages of another.
func (s *Step) bits(c *comm) (mask uint64, anySource bool) {
	source, number, frame := sourceBits|contexts.Mask, uint64(numberBits), uint64(contexts.Mask)
	if s.Raw && c == nil {
		source, number, frame = rawSource|packedBit, rawNumber, 0
	}
	switch s.Mask {
	case MaskSource:
		return source, false
	case MaskNumber:
		return frame | number, true
	case MaskParity:
		return source | 1, false
	case MaskAny:
		return frame, true
	}
	return ^uint64(0), false
}

// sends reports whether the step is a send, posts whether it is one, a receive or a probe.
func (s *Step) sends() bool { return s.Do == OpSend || s.Do == OpSsend }
func (s *Step) posts() bool {
	return s.sends() || s.Do == OpRecv || s.Do == OpProbe || s.Do == OpTake
}

// String is the plan for people.
func (p *Plan) String() string {
	params, err := json.MarshalIndent(&p.Params, "", "  ")
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s\n", p.Seed, params)
	for i := range p.Steps {
		fmt.Fprintf(&b, "%3d %s\n", i, &p.Steps[i])
	}
	return b.String()
}

// String says what the step does.
func (s *Step) String() string {
	switch s.Do {
	case OpSend, OpSsend:
		return fmt.Sprintf("rank %d: %s%s %d bytes to %d, tag %d%s", s.Rank, s.calls(), s.Do, s.Size, s.Peer, s.Tag, s.space())
	case OpRecv, OpProbe, OpTake:
		from := fmt.Sprintf("from %d, tag %d%s", s.Peer, s.Tag, s.space())
		if s.Mask != MaskExact {
			from += ", mask " + string(s.Mask)
		}
		return fmt.Sprintf("rank %d: %s%s %d bytes %s", s.Rank, s.calls(), s.Do, s.Size, from)
	case OpAck:
		return fmt.Sprintf("rank %d: %s %d%s", s.Rank, s.Do, s.N, s.space())
	case OpCancel, OpPoll, OpStep, OpUse, OpDrop:
		return fmt.Sprintf("rank %d: %s %d", s.Rank, s.Do, s.N)
	case OpClose:
		return fmt.Sprintf("rank %d: %s Comm %d", s.Rank, s.Do, s.Comm)
	case OpOpen:
		return fmt.Sprintf("%s Comm %d again", s.Do, s.Comm)
	case OpLose:
		return fmt.Sprintf("rank %d: %s rank %d", s.Rank, s.Do, s.Peer)
	case OpBreak:
		return fmt.Sprintf("rank %d: %s the link to %d", s.Rank, s.Do, s.Peer)
	}
	return fmt.Sprintf("rank %d: %s", s.Rank, s.Do)
}

func (s *Step) space() string {
	if s.Comm != 0 {
		return fmt.Sprintf(" in Comm %d", s.Comm)
	}
	if s.Raw {
		return " raw"
	}
	return ""
}

func (s *Step) calls() string {
	if s.Call {
		return "call "
	}
	return ""
}

// Save writes the plan to a file for Load.
func (p *Plan) Save(file string) error {
	b, err := p.encode()
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o644)
}

// SaveNew writes the plan to a new file in dir, and returns its name. It never overwrites a file: a
// user may have edited it.
func (p *Plan) SaveNew(dir string) (file string, err error) {
	b, err := p.encode()
	if err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		file = filepath.Join(dir, fmt.Sprintf("sim-%d.json", p.Seed))
		if n > 1 {
			file = filepath.Join(dir, fmt.Sprintf("sim-%d-%d.json", p.Seed, n))
		}
		if old, err := os.ReadFile(file); err == nil && bytes.Equal(old, b) {
			return file, nil
		}
		f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(b)
		return file, errors.Join(err, f.Close())
	}
}

func (p *Plan) encode() ([]byte, error) {
	b, err := json.MarshalIndent(p, "", " ")
	return append(b, '\n'), err
}

// Load reads a plan. It refuses unknown fields, which would be ignored otherwise.
func Load(file string) (*Plan, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		return nil, fmt.Errorf("%s is not a plan: %w", file, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%s is not a plan: something follows after byte %d", file, d.InputOffset())
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// maxRanks bounds a world.
const maxRanks = 16

func (p *Plan) check() error {
	q := &p.Params
	switch {
	case q.Ranks < 2 || q.Ranks > maxRanks:
		return fmt.Errorf("a world of %d ranks: use 2 to %d", q.Ranks, maxRanks)
	case q.Transport != "rc" && q.Transport != "tmsrq":
		return fmt.Errorf("transport %q: use rc or tmsrq", q.Transport)
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Rank < 0 || s.Peer < 0 || s.Size < 0 || s.N < 0 || s.Comm < 0 {
			return fmt.Errorf("step %d has negative numbers: %s", i, s)
		}
		if !slices.Contains(ops, s.Do) {
			return fmt.Errorf("step %d does %q: use one of %v", i, s.Do, ops)
		}
		if !slices.Contains(masks, s.Mask) {
			return fmt.Errorf("step %d has the mask %q: use one of %q, or none for source and number", i, s.Mask, masks[1:])
		}
	}
	return nil
}
