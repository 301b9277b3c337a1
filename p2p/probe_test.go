package p2p_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/p2p"
	"github.com/tagmatch/tagmatch/p2p/p2ptest"
)

var probeSizes = []int{0, 1, 8, 4 << 10, 100 << 10, 3 << 20}

// A probe says what a receive gets, and a matched one takes it, of all sizes and by every call.
func TestProbes(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		c := w.Comm()
		content := func(size int) []byte { return bytes.Repeat([]byte{byte(size), 7}, size/2+1)[:size] }
		if w.Rank() == 0 {
			for _, size := range probeSizes {
				for range 4 {
					require.NoError(t, w.Send(background, 1, 5, content(size)))
					require.NoError(t, c.Ssend(background, 1, 5, content(size)))
				}
				require.NoError(t, w.Ssend(background, 1, 5, content(size)))
				_, err := c.Issend(1, 6, content(size)).Wait(background)
				require.NoError(t, err)
				_, err = w.Issend(1, 6, content(size)).Wait(background)
				require.NoError(t, err)
			}
			return
		}
		for _, size := range probeSizes {
			want := p2p.Status{Source: 0, Tag: 5, Len: int64(size)}
			message := func(m *p2p.Message, err error) *p2p.Message {
				require.NoError(t, err)
				require.Equal(t, want, m.Status())
				if lent := m.Bytes(); lent != nil {
					require.Equal(t, string(content(size)), string(lent))
				}
				return m
			}
			check := func(buf []byte, st p2p.Status, err error) {
				require.NoError(t, err)
				require.Equal(t, want, st)
				require.True(t, bytes.Equal(content(size), buf))
			}
			buf := make([]byte, size)
			// Comm and World each have four messages of their own. Each of these takes one.
			st, err := w.Probe(background, 5, p2p.MaskExact)
			require.NoError(t, err)
			require.Equal(t, want, st)
			st, err = w.Recv(background, 0, p2p.MaskAny, buf)
			check(buf, st, err)
			st, err = c.Probe(background, p2p.AnySource, p2p.AnyTag)
			require.NoError(t, err)
			require.Equal(t, want, st)
			st, err = c.Recv(background, 0, 5, buf)
			check(buf, st, err)

			m := message(w.Mprobe(background, 5, p2p.MaskExact))
			if size <= 8 || size > 1<<20 { // the limit between is the wire's
				require.Equal(t, size <= 8, m.Bytes() != nil)
			}
			st, err = m.Recv(background, buf)
			check(buf, st, err)
			_, err = m.Recv(background, buf)
			require.ErrorIs(t, err, p2p.ErrInactive)
			m = message(c.Mprobe(background, 0, 5))
			require.Nil(t, m.Bytes(), "of a synchronous send")
			st, err = m.Irecv(buf).Wait(background)
			check(buf, st, err)
			_, err = m.Irecv(buf).Wait(background)
			require.ErrorIs(t, err, p2p.ErrInactive)

			for ok := false; !ok; {
				st, ok, err = w.Iprobe(5, p2p.MaskExact)
				require.NoError(t, err)
			}
			require.Equal(t, want, st)
			m, ok, err := w.Improbe(5, p2p.MaskExact)
			require.True(t, ok)
			message(m, err).Discard()
			for ok = false; !ok; {
				st, ok, err = c.Iprobe(0, 5)
				require.NoError(t, err)
			}
			require.Equal(t, want, st)
			m, ok, err = c.Improbe(p2p.AnySource, 5)
			require.True(t, ok)
			message(m, err).Discard()

			check(w.RecvAlloc(background, 5, p2p.MaskExact, int64(size)))
			check(c.RecvAlloc(background, 0, 5, 0))
			got, st, err := w.RecvAlloc(background, 5, p2p.MaskExact, 1)
			if size > 1 {
				require.EqualError(t, err, fmt.Sprintf("p2p: recv from any, tag 0x5: message longer than the buffer: %d bytes into 1", size))
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, want, st)
			require.Equal(t, content(size)[:min(size, 1)], got)
			want.Tag = 6
			message(c.Mprobe(background, 0, 6)).Discard()
			check(w.RecvAlloc(background, 6, p2p.MaskExact, 0))
		}
		_, ok, err := w.Improbe(0, p2p.MaskAny)
		require.NoError(t, err)
		require.False(t, ok)
		st, ok, err := c.Iprobe(p2p.AnySource, p2p.AnyTag)
		require.NoError(t, err)
		require.False(t, ok)
		require.Equal(t, p2p.Status{Source: p2p.ProcNull, Tag: p2p.AnyTag}, st)
	})
}

// Goroutines that take messages by matched probes never take each other's, whatever is posted
// beside them, and every message comes once.
func TestMprobeNeverSteals(t *testing.T) {
	const goroutines, each = 64, 12
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		c := w.Comm()
		length := func(i int) int { return []int{8, 3000, 70000}[i%3] + i/3 }
		if w.Rank() == 0 {
			for i := range goroutines * each {
				buf := bytes.Repeat([]byte{byte(i)}, length(i))
				binary.LittleEndian.PutUint64(buf, uint64(i))
				require.NoError(t, c.Send(background, 1, p2p.Tag(i%2), buf))
			}
			return
		}
		ctx, cancel := context.WithTimeout(background, testlevel.Patience(time.Minute))
		defer cancel()
		var wg sync.WaitGroup
		var mu sync.Mutex
		seen := map[uint64]bool{}
		for g := range goroutines {
			wg.Go(func() {
				for k := range each {
					var buf []byte
					var err error
					switch {
					case g%4 == 3:
						buf, _, err = c.RecvAlloc(ctx, 0, p2p.Tag(g%2), 0)
					default:
						var m *p2p.Message
						if m, err = c.Mprobe(ctx, p2p.AnySource, p2p.Tag(g%2)); err != nil {
							break
						}
						buf = make([]byte, m.Status().Len)
						if lent := m.Bytes(); lent != nil && k%2 == 0 {
							copy(buf, lent)
							m.Discard()
						} else {
							_, err = m.Recv(ctx, buf)
						}
					}
					if !assert.NoError(t, err) {
						return
					}
					i := binary.LittleEndian.Uint64(buf)
					mu.Lock()
					assert.False(t, seen[i], "message %d comes twice", i)
					seen[i] = true
					mu.Unlock()
					assert.Equal(t, length(int(i)), len(buf))
					assert.Equal(t, bytes.Repeat([]byte{byte(i)}, len(buf)-8), buf[8:])
				}
			})
		}
		wg.Wait()
		require.Len(t, seen, goroutines*each)
	})
}

// A probe and the receive of its message end with their context, and leave the message.
func TestProbeContexts(t *testing.T) {
	onWirings(t, 2, p2p.Config{}, func(t *testing.T, w *p2p.World) {
		c := w.Comm()
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}
		for _, probe := range []func() error{
			func() error { _, err := w.Probe(short(), 1, p2p.MaskExact); return err },
			func() error { _, err := c.Probe(short(), 0, 1); return err },
			func() error { _, err := w.Mprobe(short(), 1, p2p.MaskExact); return err },
			func() error { _, err := c.Mprobe(short(), p2p.AnySource, 1); return err },
			func() error { _, _, err := w.RecvAlloc(short(), 1, p2p.MaskExact, 0); return err },
		} {
			err := probe()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var op *p2p.OpError
			require.ErrorAs(t, err, &op)
		}
		r := w.Issend(1-w.Rank(), 5, []byte("hello"))
		m, err := w.Mprobe(background, 5, p2p.MaskExact)
		require.NoError(t, err)
		over, cancel := context.WithCancel(background)
		cancel()
		_, err = m.Recv(over, nil)
		require.EqualError(t, err, fmt.Sprintf("p2p: recv from %d, tag 0x5: context canceled", 1-w.Rank()))
		buf := make([]byte, 8)
		_, err = m.Recv(background, buf)
		require.NoError(t, err)
		require.Equal(t, "hello", string(buf[:5]))
		_, err = r.Wait(background)
		require.NoError(t, err)
	})
}

func TestProbeArguments(t *testing.T) {
	p2ptest.Run(t, 2, func(w *p2p.World) {
		c := w.Comm()
		var none context.Context
		st := func(_ p2p.Status, err error) error { return err }
		found := func(_ p2p.Status, ok bool, err error) error { require.False(t, ok); return err }
		message := func(m *p2p.Message, err error) error { require.Nil(t, m); return err }
		matched := func(m *p2p.Message, ok bool, err error) error { require.False(t, ok); return message(m, err) }
		alloc := func(b []byte, _ p2p.Status, err error) error { require.Nil(t, b); return err }
		noContext := "invalid argument: the context is nil: use context.Background where nothing should end the call"
		raw := "invalid argument: bit 63 of a tag belongs to the library: tags of a World's own calls go from 0 to 0x7fffffffffffffff"
		source := "invalid argument: rank 9 is out of range: sources go from 0 to 1, or AnySource or ProcNull"
		for text, err := range map[string]error{
			"p2p: probe from any, tag 0x1: " + noContext:           st(w.Probe(none, 1, p2p.MaskExact)),
			"p2p: probe from any, tag 0x8000000000000000: " + raw:  found(w.Iprobe(1<<63, p2p.MaskExact)),
			"p2p: probe from any, tag 0x8000000000000001: " + raw:  st(w.Probe(background, 1<<63|1, p2p.MaskExact)),
			"p2p: mprobe from any, tag 0x1: " + noContext:          message(w.Mprobe(none, 1, p2p.MaskExact)),
			"p2p: mprobe from any, tag 0x8000000000000000: " + raw: matched(w.Improbe(1<<63, p2p.MaskExact)),
			"p2p: recv from any, tag 0x1: " + noContext:            alloc(w.RecvAlloc(none, 1, p2p.MaskExact, 0)),
			"p2p: recv from any, tag 0x2: invalid argument: the limit is -1 bytes: use 0 for none": alloc(
				w.RecvAlloc(background, 2, p2p.MaskExact, -1)),
			"p2p: recv from 1, tag 0x3: invalid argument: the limit is -5 bytes: use 0 for none":             alloc(c.RecvAlloc(background, 1, 3, -5)),
			"p2p: probe from 0, tag 0x1: " + noContext:                                                       st(c.Probe(none, 0, 1)),
			"p2p: probe from 9, tag 0x1: " + source:                                                          found(c.Iprobe(9, 1)),
			"p2p: mprobe from 0, tag 0x1: " + noContext:                                                      message(c.Mprobe(none, 0, 1)),
			"p2p: mprobe from 9, any tag: " + source:                                                         matched(c.Improbe(9, p2p.AnyTag)),
			"p2p: recv from 9, tag 0x1: " + source:                                                           alloc(c.RecvAlloc(background, 9, 1, 0)),
			"p2p: send to 1, tag 0x1: " + noContext:                                                          w.Ssend(none, 1, 1, nil),
			"p2p: send to 0, tag 0x1: " + noContext:                                                          c.Ssend(none, 0, 1, nil),
			"p2p: send to 2, tag 0x1: invalid argument: rank 2 is out of range: destinations go from 0 to 1": st(w.Issend(2, 1, nil).Wait(background)),
			"p2p: send to 2, tag 0x1: invalid argument: rank 2 is out of range: destinations go from 0 to 1, or ProcNull": st(
				c.Issend(2, 1, nil).Wait(background)),
		} {
			require.EqualError(t, err, text)
			require.ErrorIs(t, err, p2p.ErrInvalid)
		}
		// A peer that is not there has an empty message.
		nothing := p2p.Status{Source: p2p.ProcNull, Tag: p2p.AnyTag}
		require.NoError(t, c.Ssend(background, p2p.ProcNull, 1, nil))
		got, err := c.Probe(background, p2p.ProcNull, 1)
		require.NoError(t, err)
		require.Equal(t, nothing, got)
		got, ok, err := c.Iprobe(p2p.ProcNull, 1)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, nothing, got)
		buf, got, err := c.RecvAlloc(background, p2p.ProcNull, 1, 0)
		require.NoError(t, err)
		require.Empty(t, buf)
		require.Equal(t, nothing, got)
		m, err := c.Mprobe(background, p2p.ProcNull, 1)
		require.NoError(t, err)
		again, ok, err := c.Improbe(p2p.ProcNull, p2p.AnyTag)
		require.NoError(t, err)
		require.True(t, ok)
		for _, m := range []*p2p.Message{m, m, again} {
			require.Equal(t, nothing, m.Status())
			require.Nil(t, m.Bytes())
			got, err := m.Recv(background, nil)
			require.NoError(t, err)
			require.Equal(t, nothing, got)
			got, err = m.Irecv(nil).Wait(background)
			require.NoError(t, err)
			require.Equal(t, nothing, got)
			m.Discard()
			require.ErrorIs(t, st(m.Recv(none, nil)), p2p.ErrInvalid)
		}
	})
}
