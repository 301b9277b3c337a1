// Package tmsrqtest is what only tests and simulations do with a transport of package tmsrq.
package tmsrqtest

import (
	"github.com/tagmatch/tagmatch/transport/tmsrq"
	"github.com/tagmatch/tagmatch/transport/tmsrq/internal/hook"
)

// CountFrom has a new transport know that its device counts unexpected messages from n on (TMO 5.5;
// softtest.TM.InitialCount), so that tests see the counts wrap. Call it before the first
// connection.
func CountFrom(tr *tmsrq.Transport, n uint16) { hook.CountFrom(tr, n) }
