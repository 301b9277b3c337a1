package shmring

import (
	"math/bits"
	"sync/atomic"
)

// Grants is how many grants of a ring can be in use at once.
const Grants = 32

// grants are the numbers that a reader has given to its writer, with which it may copy to the
// reader's memory: epoch*Grants + k.
type grants struct {
	epoch   uint32 // from 1 on, of 27 bits
	used    uint32 // a bit for each k in use
	revoked uint32 // of these
}

const epochMask = 1<<32/Grants - 1

// Grant returns a number, never 0, with which the writer may copy to this process's memory once it
// is told. It is in use until Return or RevokeAll. It returns false when all are.
func (c *Consumer) Grant() (uint32, bool) {
	g := &c.grants
	k := bits.TrailingZeros32(^g.used)
	if k == Grants {
		return 0, false
	}
	g.used |= 1 << k
	return g.epoch*Grants + uint32(k), true
}

// Return lets a grant be given again: the writer is done with it, or was not told.
func (c *Consumer) Return(grant uint32) {
	g, bit := &c.grants, uint32(1)<<(grant%Grants)
	if grant/Grants != g.epoch {
		return
	}
	g.used &^= bit
	if g.revoked&bit != 0 {
		g.revoked &^= bit
		c.storeGrants()
	}
}

// Revoke makes a grant in use invalid. The writer may have looked at it before, and copies until
// Busy is another number.
func (c *Consumer) Revoke(grant uint32) {
	if g := &c.grants; grant/Grants == g.epoch {
		g.revoked |= 1 << (grant % Grants)
		c.storeGrants()
	}
}

// RevokeAll is Revoke for all grants, which are in use no longer.
func (c *Consumer) RevokeAll() {
	g := &c.grants
	if g.epoch = (g.epoch + 1) & epochMask; g.epoch == 0 {
		g.epoch = 1
	}
	g.used, g.revoked = 0, 0
	c.storeGrants()
}

func (c *Consumer) storeGrants() {
	atomic.StoreUint64(&c.ctl.grant, uint64(c.grants.epoch)<<32|uint64(c.grants.revoked))
}
