// Package tmsrqtest is what only tests and simulations do with a transport of package tmsrq.
package tmsrqtest

import (
	"time"

	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/tmsrq/internal/hook"
)

// CountFrom tells a new transport that its device counts unexpected messages from n on, so that
// tests see the counts wrap; softtest.TM.InitialCount is the device's part. Call it before the
// first connection.
func CountFrom(tr *tmsrq.Transport, n uint16) { hook.CountFrom(tr, n) }

// Grace sets how long the device of a transport has to complete the matched receives of a rank that
// is lost. With 0 no clock decides, and it is two polls.
func Grace(tr *tmsrq.Transport, d time.Duration) { hook.Grace(tr, d) }
