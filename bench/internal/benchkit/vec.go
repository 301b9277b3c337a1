package benchkit

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/tagmatch/tagmatch/p2p"
)

// Vectors measures exchanges of messages of many parts, each of which lies apart from the others,
// as those of a column of a matrix do: by IsendVec and IrecvVec, and by turns with a program that
// packs and unpacks them itself. Sizes are those of a part.
type Vectors struct {
	Common
	Parts Counts
}

// NewVectors has the defaults.
func NewVectors() *Vectors {
	return &Vectors{Common: Common{Sizes: Sizes{8, 64, 1000}}, Parts: Counts{1, 2, 8, 64, 1024, 4096}}
}

// Register adds the flags.
func (v *Vectors) Register(fs *flag.FlagSet) {
	v.Common.Register(fs)
	fs.Var(&v.Parts, "parts", "`numbers` of parts of a message")
}

// Messages are exchanges.
func (v *Vectors) Messages(size int, _ string) int { return 20_000 / (1 + size/200) }

// Run measures a size, after comparing what comes.
func (v *Vectors) Run(s *Session, size, iters int) error {
	for _, parts := range v.Parts {
		if err := s.Report(newVectors(s, size, parts).measure(s, iters)); err != nil {
			return err
		}
	}
	return nil
}

func (v *vectors) measure(s *Session, iters int) (Result, error) {
	if err := v.checked(); err != nil {
		return Result{}, err
	}
	each := max(iters/vecTurns, 1)
	took := make([][]float64, len(vecWays)) // by way: us of an exchange in each turn
	for range vecTurns {
		for i, way := range vecWays {
			start := time.Now()
			for range each {
				if err := way(v); err != nil {
					return Result{}, err
				}
			}
			took[i] = append(took[i], us(time.Since(start))/float64(each))
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	mid := func(i int) float64 { return took[i][vecTurns/2] }
	n := each * vecTurns
	r := s.Result("vec", v.size, n, time.Duration(mid(0)*1e3*float64(n)))
	r.MBs *= float64(len(v.out))
	r.Vec = &Vec{Parts: len(v.out), PackedUs: mid(1), OverPacked: mid(0) / mid(1)}
	return r, nil
}

// Vec is what the result of Vectors has beside an exchange by the library, AvgUs.
type Vec struct {
	Parts      int     `json:"parts" col:"parts"`
	PackedUs   float64 `json:"packed_us" col:"packed us"` // an exchange by a program that packs
	OverPacked float64 `json:"over_packed" col:"over packed"`
}

const (
	vecTurns = 51
	vecApart = 64 // bytes between two parts
)

// vecWays are what takes turns.
var vecWays = []func(v *vectors) error{(*vectors).exchange, (*vectors).packed}

// vectors is one rank's side.
type vectors struct {
	w            *p2p.World
	peer, size   int
	out, in      [][]byte
	sent, got    []byte // packed
	reqs         [2]p2p.Request
	sender, memo []byte // all of the memory of out, and of in
}

func newVectors(s *Session, size, parts int) *vectors {
	v := &vectors{w: s.World, peer: s.Peer, size: size, sent: make([]byte, size*parts), got: make([]byte, size*parts)}
	v.sender, v.memo = make([]byte, parts*(size+vecApart)), make([]byte, parts*(size+vecApart))
	for i := range parts {
		at := i * (size + vecApart)
		v.out = append(v.out, v.sender[at:at+size:at+size])
		v.in = append(v.in, v.memo[at:at+size:at+size])
	}
	return v
}

// exchange sends and receives a vector.
func (v *vectors) exchange() error {
	c := v.w.Comm()
	v.reqs[0] = c.IrecvVec(v.peer, data, v.in)
	v.reqs[1] = c.IsendVec(v.peer, data, v.out)
	return p2p.WaitAll(context.Background(), v.reqs[:], nil)
}

// packed is the same by a program that packs.
func (v *vectors) packed() error {
	c := v.w.Comm()
	v.reqs[0] = c.Irecv(v.peer, data, v.got)
	v.pack()
	v.reqs[1] = c.Isend(v.peer, data, v.sent)
	err := p2p.WaitAll(context.Background(), v.reqs[:], nil)
	v.unpack()
	return err
}

// pack and unpack are as fast as a program that knows the length of its parts can be.
func (v *vectors) pack() {
	if v.size == 8 {
		for i, part := range v.out {
			*(*[8]byte)(v.sent[i*8:]) = *(*[8]byte)(part)
		}
		return
	}
	for i, part := range v.out {
		copy(v.sent[i*v.size:], part)
	}
}

func (v *vectors) unpack() {
	if v.size == 8 {
		for i, part := range v.in {
			*(*[8]byte)(part) = *(*[8]byte)(v.got[i*8:])
		}
		return
	}
	for i, part := range v.in {
		copy(part, v.got[i*v.size:])
	}
}

// checked exchanges by both ways, and compares what has come.
func (v *vectors) checked() error {
	for seq, way := range vecWays {
		Fill(v.sender, payload(v.w.Rank(), seq))
		clear(v.memo)
		if err := way(v); err != nil {
			return err
		}
		theirs := make([]byte, len(v.memo))
		Fill(theirs, payload(v.peer, seq))
		for i, part := range v.in {
			at := i * (v.size + vecApart)
			if err := Damage(part, theirs[at:at+v.size]); err != nil {
				return fmt.Errorf("part %d of %d %w", i, len(v.in), err)
			}
		}
	}
	return nil
}
