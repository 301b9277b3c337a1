package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// Serve joins rank 0: it serves the rendezvous at ln, and returns when all ranks have joined. It
// closes ln where it fails, else Close of the Endpoint does.
func (j *Job) Serve(ctx context.Context, cfg *Config, ln net.Listener, sec Secret) (*Endpoint, error) {
	h := newHub(j.Size, cfg.fanOut)
	e := j.endpoint(sec, Loopback)
	m := &rootMember{localMember: localMember{e}}
	h.join(0, m) // before another process can dial and claim rank 0
	root := &rootLink{localLink{h, 0}, newStore(h, ln, cfg, j.Epoch, sec), cfg.Linger}
	e.up = root
	e.vigil = func() func() {
		stop, end := cfg.Vigil(0, h.awaited), cfg.Waits.Begin(h.awaited)
		return func() {
			stop()
			end()
		}
	}
	what := func() string { return fmt.Sprintf("at %s for all ranks to join; %s", ln.Addr(), h.absent()) }
	defer cfg.Vigil(0, what)()
	defer cfg.Waits.Begin(what)()
	select {
	case <-h.full:
		if m.root.IsValid() {
			e.info.LocalIP = m.root
		}
		return e, nil
	case <-e.broken: // the timeout of another rank ended first
		root.store.close()
		return nil, e.err
	case <-ctx.Done():
		err := Errorf(ctx.Err(), "rank 0 waited at %s for all ranks to join (%v); %s", ln.Addr(), context.Cause(ctx), h.absent())
		h.fail(fmt.Sprintf("gave up waiting for all ranks to join (%v); %s", context.Cause(ctx), h.absent()))
		root.store.close()
		return nil, err
	}
}

// rootMember is rank 0 in its own hub. Like the others it learns its address from WELCOME.
type rootMember struct {
	localMember
	root netip.Addr // written before full is closed
}

func (m *rootMember) deliver(msg message) {
	if w, ok := msg.(*welcomeMsg); ok {
		m.root = w.root
	}
	m.localMember.deliver(msg)
}

// rootLink is the uplink of rank 0.
type rootLink struct {
	localLink
	store  *store
	linger time.Duration
}

// send waits until an Abort was written, as the caller may exit next.
func (l *rootLink) send(m message) error {
	err := l.localLink.send(m)
	if m.kind() == kindAbort {
		l.hub.flush()
	}
	return err
}

// fenced waits until those have the answer that get it from here: the fence then completes for all,
// even if this process dies at once, as the others get it from these.
func (l *rootLink) fenced() { l.hub.flush() }

// close waits for the others, so that their last messages are answered, and tells the remaining
// ones.
func (l *rootLink) close(finished bool) error {
	_ = l.localLink.close(finished)
	t := time.NewTimer(l.linger)
	defer t.Stop()
	select {
	case <-l.hub.empty:
	case <-t.C:
		l.hub.fail(ReasonLeft)
	}
	l.store.close()
	return nil
}
