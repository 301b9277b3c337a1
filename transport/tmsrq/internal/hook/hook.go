// Package hook is what package tmsrq shows to package tmsrqtest and to nobody else.
package hook

import "time"

// These are set by package tmsrq; tr is a *tmsrq.Transport, which this package cannot name.
var (
	CountFrom func(tr any, n uint16)
	Grace     func(tr any, d time.Duration)
)
