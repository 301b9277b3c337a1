package wait

// Watcher is told the end of an Event.
type Watcher interface {
	// Over is called once for each Watch, which is unlinked already, when its Event has ended or
	// was given away. The lock is held. It must neither poll nor block.
	Over()
	// Waits reports whether a goroutine waits for it. The lock is held.
	Waits() bool
}

// Watch links a Watcher to an Event. Parked goroutines have one, and so does what waits for many
// Events at once. The zero value is linked to none. All methods need the lock.
type Watch struct {
	watcher    Watcher
	ev         *Event // nil while unlinked
	next, prev *Watch // in Event.watches
}

// Link has w call watcher when ev, which has not ended, ends or is given away.
func (w *Watch) Link(ev *Event, watcher Watcher) {
	w.watcher, w.ev = watcher, ev
	w.next = ev.watches
	if w.next != nil {
		w.next.prev = w
	}
	ev.watches = w
}

// Linked reports whether w is linked: its Watcher was not called.
func (w *Watch) Linked() bool { return w.ev != nil }

// Unlink takes w back, if it is linked: its Watcher is not called any more.
func (w *Watch) Unlink() {
	if w.ev == nil {
		return
	}
	if w.prev == nil {
		w.ev.watches = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.watcher, w.ev, w.next, w.prev = nil, nil, nil, nil
}

// tell calls the watchers of ev, none of which links a watch to it.
func (ev *Event) tell() {
	for w := ev.watches; w != nil; w = ev.watches {
		watcher := w.watcher
		w.Unlink()
		watcher.Over()
	}
}

// Awaited reports whether a goroutine sleeps until the present generation of ev ends.
func (ev *Event) Awaited() bool {
	for w := ev.watches; w != nil; w = w.next {
		if w.watcher.Waits() {
			return true
		}
	}
	return false
}
