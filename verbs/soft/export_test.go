package soft

// AsyncPass does what the goroutine of a device in asynchronous mode does when nobody has polled
// for a tick, without having to wait for the scheduler. The caller does not hold the owner's lock.
func AsyncPass(d *Device) {
	a := d.async
	a.owner.Lock()
	defer a.owner.Unlock()
	a.seen = a.polls
	a.turn()
}

// Pushed reports how many rendezvous a device has had pushed into its memory. The caller does not
// hold the owner's lock.
func Pushed(d *Device) uint64 {
	d.async.owner.Lock()
	defer d.async.owner.Unlock()
	return d.async.pushed
}
