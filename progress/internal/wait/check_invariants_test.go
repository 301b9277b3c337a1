//go:build invariants

package wait

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
)

// Each check is seen to fail when its rule is broken.

func TestOwnerIsChecked(t *testing.T) {
	f, o := newFake(t, Config{Manual: true}), &op{}
	for _, call := range []func(){
		func() { _ = f.Await(bg, &o.Event, o, 0) },
		func() { f.Done(&o.Event, 0) },
		f.disarm,
		f.endRole,
	} {
		invarianttest.Violates(t, "owner", call)
	}
}

func TestSecondPollerIsFound(t *testing.T) {
	f := newFake(t, Config{Manual: true})
	f.takeRole()
	found := make(chan any)
	go func() {
		defer func() { found <- recover() }()
		f.takeRole()
	}()
	require.IsType(t, &invariant.Violation{}, <-found)
}

func TestWaitersAreChecked(t *testing.T) {
	for name, spoil := range map[string]func(f *fake){
		"used twice": func(f *fake) { w := f.newWaiter(&Event{}); f.free = w; f.newWaiter(&Event{}) },
		"freed twice": func(f *fake) {
			w := f.newWaiter(&Event{})
			f.freeWaiter(w)
			f.freeWaiter(w)
		},
		"freed in a list":               func(f *fake) { w := f.newWaiter(&Event{}); f.parked.push(w); f.freeWaiter(w) },
		"that is free is parked":        func(f *fake) { f.parked.push(new(waiter)); f.Check() },
		"that is consumed":              func(f *fake) { ev := &Event{}; f.parked.push(f.newWaiter(ev)); ev.SetEnded(); ev.Take(0); f.Check() },
		"have not run":                  func(f *fake) { f.waking++; f.Check() },
		"the poller role is not parked": func(f *fake) { f.successor = new(waiter); f.Check() },
		"without the poller role":       func(f *fake) { f.sleeper = new(waiter); f.Check() },
		"in the pool": func(f *fake) {
			ev := &Event{}
			f.newWaiter(ev)
			ev.CheckUnused()
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fake{}
			require.Contains(t, invarianttest.Violates(t, "waiter", func() { spoil(f) }), name)
		})
	}
}

// A check of a waiter names who waits.
func TestViolationNamesTheWaiter(t *testing.T) {
	f := &fake{}
	w := f.newWaiter(&Event{})
	f.parked.push(w)
	require.Contains(t, invarianttest.Violates(t, "waiter", func() { f.freeWaiter(w) }), t.Name())
}
