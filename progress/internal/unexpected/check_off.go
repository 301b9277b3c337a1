//go:build !invariants

package unexpected

// What a Queue checks of itself is in check.go, for builds with -tags invariants. This is what is
// left of it in others: nothing.

type queueCheck struct{}

const checkCost = 0

// Check checks the whole queue in a build with -tags invariants.
func (*Queue) Check() {}

func (*queueCheck) match(*Queue, uint64, uint64, *Message) {}
func (*queueCheck) drop(*Message)                          {}
func (*queueCheck) request(*Message)                       {}
func (*Message) checkUnused()                              {}
func (*Message) poison()                                   {}
func poisonBuffer([]byte)                                  {}
func checkPoisoned([]byte)                                 {}
