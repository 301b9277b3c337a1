package tmsrq_test

import (
	"sync"
	"testing"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/transporttest"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

// shared is a transport whose device works by itself whenever no call is in progress: each call
// holds the lock, as an engine does.
type shared struct {
	transport.Transport
	dev    *soft.Device
	mu     sync.Mutex
	inside bool // a call is under way; what the sink calls belongs to it
}

func newShared(dev verbs.Device, rank, size int, o transporttest.Options, sink transport.Sink) (transport.Transport, error) {
	tr, err := newTM(dev, rank, size, o, sink)
	if err != nil {
		return nil, err
	}
	s := &shared{Transport: tr, dev: dev.(*soft.Device)}
	return s, s.dev.Async(&s.mu)
}

// call runs f with the lock, and tells the device afterwards that nobody polls.
func (s *shared) call(f func()) {
	if s.inside {
		f()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside = true
	f()
	s.inside = false
	s.dev.PollingEnded()
}

func (s *shared) Connect(peer int, addr []byte) (err error) {
	s.call(func() { err = s.Transport.Connect(peer, addr) })
	return err
}

func (s *shared) SendEager(peer int, appCtx uint32, tag uint64, payload []byte) (err error) {
	s.call(func() { err = s.Transport.SendEager(peer, appCtx, tag, payload) })
	return err
}

func (s *shared) SendRndv(peer int, h *transport.RndvHdr) (err error) {
	s.call(func() { err = s.Transport.SendRndv(peer, h) })
	return err
}

func (s *shared) SendFin(peer int, appCtx uint32) (err error) {
	s.call(func() { err = s.Transport.SendFin(peer, appCtx) })
	return err
}

func (s *shared) SendCtrl(peer int, msg []byte) (err error) {
	s.call(func() { err = s.Transport.SendCtrl(peer, msg) })
	return err
}

func (s *shared) Register(peer int, buf []byte) (r transport.Region, err error) {
	s.call(func() { r, err = s.Transport.Register(peer, buf) })
	return sharedRegion{r, s}, err
}

func (s *shared) Read(peer int, dst []byte, va uint64, rkey uint32, id uint64) (err error) {
	s.call(func() { err = s.Transport.Read(peer, dst, va, rkey, id) })
	return err
}

func (s *shared) Disconnect(peer int, err error) {
	s.call(func() { s.Transport.Disconnect(peer, err) })
}
func (s *shared) Abandon(peer int, id uint64) { s.call(func() { s.Transport.Abandon(peer, id) }) }

func (s *shared) Grant(peer int, total uint64) (err error) {
	s.call(func() { err = s.Transport.Grant(peer, total) })
	return err
}

func (s *shared) Granted(peer int) (total uint64) {
	s.call(func() { total = s.Transport.Granted(peer) })
	return total
}

func (s *shared) Wire(peer int) (name string) {
	s.call(func() { name = s.Transport.Wire(peer) })
	return name
}

func (s *shared) Poll() (n int, err error) {
	s.call(func() { n, err = s.Transport.Poll() })
	return n, err
}

func (s *shared) Drained() (ok bool) {
	s.call(func() { ok = s.Transport.Drained() })
	return ok
}

func (s *shared) Arm() (err error) {
	s.call(func() { err = s.Transport.Arm() })
	return err
}

func (s *shared) Disarm() { s.call(s.Transport.Disarm) }

func (s *shared) Close() (err error) {
	s.call(func() { err = s.Transport.Close() })
	return err
}

func (s *shared) TagList() transport.TagList {
	if l := s.Transport.TagList(); l != nil {
		return &sharedList{l, s}
	}
	return nil
}

type sharedRegion struct {
	transport.Region
	s *shared
}

func (r sharedRegion) Dereg() (err error) {
	r.s.call(func() { err = r.Region.Dereg() })
	return err
}

type sharedList struct {
	transport.TagList
	s *shared
}

func (l *sharedList) Add(id uint64, tag, mask uint64, buf []byte, handled uint32) (err error) {
	l.s.call(func() { err = l.TagList.Add(id, tag, mask, buf, handled) })
	return err
}

func (l *sharedList) Del(id uint64, handled uint32) (err error) {
	l.s.call(func() { err = l.TagList.Del(id, handled) })
	return err
}

func (l *sharedList) Drop(id uint64, handled uint32) (err error) {
	l.s.call(func() { err = l.TagList.Drop(id, handled) })
	return err
}

func (l *sharedList) Sync(handled uint32) (err error) {
	l.s.call(func() { err = l.TagList.Sync(handled) })
	return err
}

// TestAsync runs the suite on devices in asynchronous mode.
func TestAsync(t *testing.T) {
	for name, config := range map[string]soft.Config{
		"shm": {}, "copied": softtest.WithoutDirect(soft.Config{RingBytes: 16 << 10}), "tcp": {},
	} {
		wire := soft.WireSHM
		if name == "tcp" {
			wire = soft.WireTCP
		}
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Harness{Devices: transporttest.WireDevices(wire, softtest.WithTM(config, strict)), New: newShared, Tags: true})
		})
	}
}
