package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/transport"
)

// TestBugs checks that the simulation can fail: each bug, placed between engines and transports,
// must be detected, and its plan must shrink to a few steps.
func TestBugs(t *testing.T) {
	for name, bug := range bugs {
		t.Run(name, func(t *testing.T) {
			play := func(p *Plan) error {
				w := newWorld(p)
				w.wrap = func(_ int, open opener) opener { return bug.into(open) }
				_, err := w.run()
				return err
			}
			p, err := firstFailing(play)
			require.Error(t, err, "not found")
			ctx, cancel := context.WithTimeout(t.Context(), testlevel.Patience(time.Minute))
			defer cancel()
			small, err := Shrink(ctx, p, err, play)
			t.Logf("%s: %d steps of %d: %v", name, len(small.Steps), len(p.Steps), err)
			require.Error(t, err)
			// An invariants build may detect it sooner.
			if kind := KindOf(err); !strings.HasPrefix(kind, "invariant ") {
				require.Equal(t, bug.kind, kind)
			}
			require.LessOrEqual(t, len(small.Steps), bug.steps, "%s", small)
		})
	}
}

func firstFailing(play func(*Plan) error) (*Plan, error) {
	for seed := uint64(1); seed < 2000; seed++ {
		p := NewPlan(seed)
		if err := play(p); err != nil {
			return p, err
		}
	}
	return nil, nil
}

// A bug is in a badSink, a badList or a badTransport.
type bug struct {
	kind  string // of the failure
	steps int    // to which its plan shrinks, at most
	eager func(s *badSink, m mail)
	fin   func(s *badSink, src int, appCtx uint32)
	done  func(s *badSink, id, n uint64)
	poll  func(s *badSink)
	lost  bool // changes outcomes of Del
	deaf  bool // drops losses

	deafens bool  // drops control messages
	drained bool  // Drained is always true
	early   bool  // losses are reported before matched receives have ended
	close   error // what Close returns
}

// mail is an eager message.
type mail struct {
	src    int
	appCtx uint32
	tag    uint64
	data   []byte
}

var bugs = map[string]*bug{
	"swapped messages": {
		kind: "matching", steps: 7,
		eager: func(s *badSink, m mail) {
			if i := slices.IndexFunc(s.held, func(h mail) bool { return h.src == m.src }); i >= 0 {
				h := s.held[i]
				s.held = slices.Delete(s.held, i, i+1)
				s.deliver(m)
				s.deliver(h)
				return
			}
			s.held = append(s.held, m)
			s.age = 0
		},
		poll: func(s *badSink) {
			if s.age++; s.age > 20 {
				s.release()
			}
		},
	},
	"message lost": {
		kind: "unfinished", steps: 3,
		eager: func(s *badSink, m mail) {
			if s.third() {
				s.deliver(m)
			}
		},
	},
	"message twice": {
		kind: "content", steps: 4,
		eager: func(s *badSink, m mail) {
			s.deliver(m)
			if !s.third() {
				s.deliver(m)
			}
		},
	},
	"wrong bytes": {
		kind: "content", steps: 3,
		eager: func(s *badSink, m mail) {
			if n := len(m.data); n > 0 && !s.third() {
				m.data[n-1] ^= 1
			}
			s.deliver(m)
		},
	},
	"tag of another": {
		kind: "content", steps: 3,
		eager: func(s *badSink, m mail) {
			m.tag ^= 1
			s.deliver(m)
		},
	},
	"FIN lost": {
		kind: "unfinished", steps: 3,
		fin: func(s *badSink, src int, appCtx uint32) {
			if s.third() {
				s.Sink.Fin(src, appCtx)
			}
		},
	},
	"write behind the buffer": {
		kind: "overrun", steps: 3,
		done: func(s *badSink, id, n uint64) {
			buf := s.bufs[id]
			buf[:len(buf)+1][len(buf)] ^= 1
			s.Sink.Delivered(id, n, nil)
		},
	},
	"write after the end": {
		kind: "late write", steps: 9, // it is written eight polls later
		done: func(s *badSink, id, n uint64) {
			s.late = append(s.late, s.bufs[id])
			s.Sink.Delivered(id, n, nil)
		},
		poll: func(s *badSink) {
			if s.age++; s.age%8 == 0 {
				for _, b := range s.late {
					if len(b) > 0 {
						b[0] ^= 1
					}
				}
				s.late = nil
			}
		},
	},
	"wrong length": {
		kind: "content", steps: 3,
		done: func(s *badSink, id, n uint64) { s.Sink.Delivered(id, n+1, nil) },
	},
	"cancel without an answer": {kind: "unfinished", steps: 2, lost: true},
	"loss not told":            {kind: "unseen loss", steps: 2, deaf: true},
}

// into places the bug between an engine and a transport.
func (b *bug) into(open opener) opener {
	return func(sink transport.Sink) (transport.Transport, error) {
		s := &badSink{Sink: sink, bug: b, bufs: map[uint64][]byte{}}
		tr, err := open(s)
		if err != nil {
			return nil, err
		}
		return &badTransport{tr, s}, nil
	}
}

type badTransport struct {
	transport.Transport
	sink *badSink
}

func (t *badTransport) Poll() (int, error) {
	n, err := t.Transport.Poll()
	if t.sink.bug.poll != nil {
		t.sink.bug.poll(t.sink)
		n += len(t.sink.held) + len(t.sink.late) // more events follow
	}
	return n, err
}

func (t *badTransport) Drained() bool { return t.sink.bug.drained || t.Transport.Drained() }
func (t *badTransport) Close() error  { return errors.Join(t.Transport.Close(), t.sink.bug.close) }

func (t *badTransport) TagList() transport.TagList {
	if list := t.Transport.TagList(); list != nil {
		return &badList{list, t.sink}
	}
	return nil
}

type badList struct {
	transport.TagList
	sink *badSink
}

func (l *badList) Add(id uint64, tag, mask uint64, buf []byte, handled uint32) error {
	l.sink.bufs[id] = buf
	return l.TagList.Add(id, tag, mask, buf, handled)
}

type badSink struct {
	transport.Sink
	bug   *bug
	bufs  map[uint64][]byte // by id: of receives in the device's list
	held  []mail
	again []mail // delivered repeatedly
	late  [][]byte
	ends  []func() // delayed ends of receives
	age   int
	n     int
}

// third is false every third time.
func (s *badSink) third() bool {
	s.n++
	return s.n%3 != 0
}

// release delivers what is held.
func (s *badSink) release() {
	for _, h := range s.held {
		s.deliver(h)
	}
	s.held = nil
}

func (s *badSink) deliver(m mail) { s.Sink.Eager(m.src, m.appCtx, m.tag, m.data) }

func (s *badSink) Eager(src int, appCtx uint32, tag uint64, payload []byte) {
	m := mail{src, appCtx, tag, slices.Clone(payload)}
	if s.bug.eager == nil {
		s.deliver(m)
	} else {
		s.bug.eager(s, m)
	}
}

func (s *badSink) Fin(src int, appCtx uint32) {
	if s.bug.fin == nil {
		s.Sink.Fin(src, appCtx)
	} else {
		s.bug.fin(s, src, appCtx)
	}
}

func (s *badSink) Ctrl(src int, msg []byte) {
	s.release() // else it would come behind a FLUSH, which is another bug
	if !s.bug.deafens {
		s.Sink.Ctrl(src, msg)
	}
}

func (s *badSink) Delivered(id, n uint64, err error) {
	if s.bug.early {
		s.ends = append(s.ends, func() { s.Sink.Delivered(id, n, err) })
		return
	}
	if s.bug.done == nil || err != nil {
		s.Sink.Delivered(id, n, err)
	} else {
		s.bug.done(s, id, n)
	}
}

func (s *badSink) PeerLost(peer int, err error) {
	if !s.bug.deaf {
		s.Sink.PeerLost(peer, err)
	}
	for _, end := range s.ends {
		end()
	}
	s.ends = nil
}

func (s *badSink) Deleted(id uint64, ok bool) {
	if !s.bug.lost {
		s.Sink.Deleted(id, ok)
	}
}
