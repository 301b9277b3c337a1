// Package hook is what package soft lends to package softtest and to nobody else. Package soft sets
// it; dev is always a *soft.Device, which this package cannot name.
package hook

import "github.com/tagmatch/tagmatch/verbs/soft/internal/wire"

var (
	ID       func(dev any) wire.DeviceID
	Step     func(dev any)
	Idle     func(dev any) bool
	Refusals func(dev any) uint64
	CutShort func(dev any) uint64
)
