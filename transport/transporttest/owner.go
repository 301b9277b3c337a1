package transporttest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/verbs"
)

// RequireOwner checks, in builds with -tags invariants, that a second goroutine in a transport is
// reported: whatever it calls reaches the device, which knows who holds the owner's lock. The
// harness's devices must have an asynchronous mode.
func RequireOwner(t *testing.T, h Harness) {
	if !invariant.Enabled {
		return
	}
	c := h.start(t, 1, Options{})
	r := c.ranks[0]
	var owner invariant.Mutex
	require.NoError(t, c.job.Devices[0].(verbs.Async).Async(&owner))
	calls := map[string]func(){
		"SendEager": func() { _ = r.SendEager(0, 1, 2, nil) },
		"SendCtrl":  func() { _ = r.SendCtrl(0, nil) },
		"SendFin":   func() { _ = r.SendFin(0, 1) },
		"Grant":     func() { _ = r.Grant(0, 1) },
		"Register":  func() { _, _ = r.Register(0, make([]byte, 8)) },
		"Read":      func() { _ = r.Read(0, make([]byte, 8), 0, 0, 1) },
		"Poll":      func() { _, _ = r.Poll() },
		"Arm":       func() { _ = r.Arm() },
	}
	if list := r.TagList(); list != nil {
		calls["Add"] = func() { _ = list.Add(1, 2, ^uint64(0), make([]byte, 8), 0) }
		calls["Sync"] = func() { _ = list.Sync(0) }
	}
	owner.Lock()
	for name, call := range calls {
		said := make(chan string)
		go func() {
			defer close(said)
			said <- invarianttest.Violates(t, "owner", call)
		}()
		require.Contains(t, <-said, "which another holds", name)
	}
	c.close(r)
	owner.Unlock()
}
