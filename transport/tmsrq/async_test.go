package tmsrq_test

import (
	"sync"
	"testing"

	"github.com/tagmatch/tagmatch/internal/testlevel"
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

// do runs f with the lock, and tells the device afterwards that nobody polls.
func (s *shared) do(f func()) {
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

// call is do for an f with a result.
func call[T any](s *shared, f func() T) (result T) {
	s.do(func() { result = f() })
	return result
}

func (s *shared) Connect(peer int, addr []byte) error {
	return call(s, func() error { return s.Transport.Connect(peer, addr) })
}

func (s *shared) SendEager(peer int, appCtx uint32, tag uint64, payload []byte) error {
	return call(s, func() error { return s.Transport.SendEager(peer, appCtx, tag, payload) })
}

func (s *shared) SendEagers(peer int, appCtx uint32, msgs []transport.Eager) int {
	return call(s, func() int { return s.Transport.SendEagers(peer, appCtx, msgs) })
}

func (s *shared) SendRndv(peer int, h *transport.RndvHdr) error {
	return call(s, func() error { return s.Transport.SendRndv(peer, h) })
}

func (s *shared) SendFin(peer int, appCtx uint32) error {
	return call(s, func() error { return s.Transport.SendFin(peer, appCtx) })
}

func (s *shared) SendCtrl(peer int, msg []byte) error {
	return call(s, func() error { return s.Transport.SendCtrl(peer, msg) })
}

func (s *shared) Register(peer int, buf []byte) (r transport.Region, err error) {
	s.do(func() { r, err = s.Transport.Register(peer, buf) })
	return sharedRegion{r, s}, err
}

func (s *shared) Read(peer int, dst []byte, va uint64, rkey uint32, id uint64) error {
	return call(s, func() error { return s.Transport.Read(peer, dst, va, rkey, id) })
}

func (s *shared) Grant(peer int, total uint64) error {
	return call(s, func() error { return s.Transport.Grant(peer, total) })
}

func (s *shared) Granted(peer int) uint64 {
	return call(s, func() uint64 { return s.Transport.Granted(peer) })
}

func (s *shared) Poll() (n int, err error) {
	s.do(func() { n, err = s.Transport.Poll() })
	return n, err
}

func (s *shared) Disconnect(peer int, err error) { s.do(func() { s.Transport.Disconnect(peer, err) }) }
func (s *shared) Abandon(peer int, id uint64) (released bool) {
	s.do(func() { released = s.Transport.Abandon(peer, id) })
	return released
}
func (s *shared) Wire(peer int) string {
	return call(s, func() string { return s.Transport.Wire(peer) })
}
func (s *shared) Drained() bool { return call(s, s.Transport.Drained) }
func (s *shared) Arm() error    { return call(s, s.Transport.Arm) }
func (s *shared) Disarm()       { s.do(s.Transport.Disarm) }
func (s *shared) Close() error  { return call(s, s.Transport.Close) }

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

func (r sharedRegion) Dereg() error { return call(r.s, r.Region.Dereg) }

type sharedList struct {
	transport.TagList
	s *shared
}

func (l *sharedList) Add(id uint64, tag, mask uint64, buf []byte, handled uint32) error {
	return call(l.s, func() error { return l.TagList.Add(id, tag, mask, buf, handled) })
}

func (l *sharedList) Del(id uint64, handled uint32) error {
	return call(l.s, func() error { return l.TagList.Del(id, handled) })
}

func (l *sharedList) ForceDel(id uint64, handled uint32) error {
	return call(l.s, func() error { return l.TagList.ForceDel(id, handled) })
}

func (l *sharedList) Sync(handled uint32) error {
	return call(l.s, func() error { return l.TagList.Sync(handled) })
}

// TestAsync runs the suite on devices in asynchronous mode.
func TestAsync(t *testing.T) {
	testlevel.SkipIfQuick(t)
	for name, devices := range map[string]func(*testing.T, int, transporttest.Options) *transporttest.Job{
		"shm":    transporttest.WireDevices(soft.WireSHM, softtest.WithTM(soft.Config{}, strict)),
		"copied": transporttest.WireDevices(soft.WireSHM, softtest.WithTM(copied, strict)),
		"tcp":    transporttest.WireDevices(soft.WireTCP, softtest.WithTM(soft.Config{}, strict)),
		"tls":    transporttest.WireDevices(soft.WireTCP, softtest.WithTLS(softtest.WithTM(soft.Config{}, strict))),
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, transporttest.Harness{Devices: devices, New: newShared, Tags: true})
		})
	}
}
