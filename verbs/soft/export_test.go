package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

// RaiseQP brings a queue pair to RTS, connected to number num of a device, with so many retries
// while the peer has no receive.
func RaiseQP(tb testing.TB, qp verbs.QP, peer verbs.Device, num uint32, retries uint8) {
	tb.Helper()
	to := verbs.AddressVector{Address: peer.Address()}
	require.NoError(tb, qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1, AccessFlags: accessAll}, verbs.QPMaskInit))
	require.NoError(tb, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTR, AV: to, PathMTU: verbs.MTU1024, DestQPN: num,
		MaxDestRdAtomic: 16, MinRNRTimer: 14}, verbs.QPMaskRTR))
	require.NoError(tb, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS, MaxRdAtomic: 16, RetryCnt: 7, RNRRetry: retries}, verbs.QPMaskRTS))
}

// AsyncPass does what the goroutine of a device in asynchronous mode does when nobody polls,
// without having to wait for the scheduler, and reports whether it would go on at once. The caller
// does not hold the owner's lock.
func AsyncPass(d *Device) (again bool) {
	a := d.async
	a.owner.Lock()
	defer a.owner.Unlock()
	d.armWires(a.programArmed)
	return a.turn()
}

// Pushed reports how many READs a device has had pushed into its memory. The caller does not
// hold the owner's lock.
func Pushed(d *Device) uint64 {
	if d.async != nil {
		d.async.owner.Lock()
		defer d.async.owner.Unlock()
	}
	return d.pushed
}

// Waiting reports how many pushes of a queue pair can be taken back, and how many requests wait for
// a response.
func Waiting(qp verbs.QP) (shares, awaited int) {
	q := qp.(*queuePair)
	return q.shares, q.rdq.len()
}

// LateWake is how often a device that sleeps looks whether a peer still copies.
const LateWake = lateWake

// Lingering is how many queue pairs are still to tell a peer that they are gone.
func (d *Device) Lingering() int { return len(d.lingering) }

// HoldCopy has the peer of a queue pair see its device in the middle of a copy until release is
// called. The device must not be polled in between.
func HoldCopy(qp verbs.QP) (release func()) {
	return qp.(*queuePair).link.(interface{ HoldCopy() func() }).HoldCopy()
}
