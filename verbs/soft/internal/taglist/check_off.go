//go:build !invariants

package taglist

import "github.com/tagmatch/tagmatch/verbs"

// checks are a model of the list, for builds with -tags invariants. This is what is left of it in
// others: nothing.
type checks struct{}

func (*checks) start(*List)                  {}
func (*checks) arrival(*List) func()         { return func() {} }
func (*checks) begin(*Op)                    {}
func (*checks) done(*List)                   {}
func (*checks) added(*List, *Op)             {}
func (*checks) asked(uint32, bool)           {}
func (*checks) postedOp(*List)               {}
func (*checks) inserted(uint32)              {}
func (*checks) removed(uint32, bool)         {}
func (*checks) activated()                   {}
func (*checks) told(*Op)                     {}
func (*checks) count(int)                    {}
func (*checks) asleep()                      {}
func (*checks) matched(uint64, bool, uint32) {}
func (*checks) end(uint64, uint32)           {}
func (*checks) polled(*verbs.WC, uint32)     {}
func (*checks) freed(*List, uint32)          {}
func (*checks) now(*List)                    {}
