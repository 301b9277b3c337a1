//go:build !invariants

package links

import "github.com/tagmatch/tagmatch/verbs"

// What a build with -tags invariants checks is in check.go. This is what is left of it in others:
// nothing.

type ringCheck struct{}

func (ringCheck) init(int) {}

type poolCheck struct{}

func (poolCheck) init(int) {}

func checkHeader(*verbs.SendWR)       {}
func (*peer) checkCompleted(uint32)   {}
func (*budget) check([]*peer, uint32) {}
func (*ring) checkTaken(uint64)       {}
func (*ring) checkPosted(uint64)      {}
func (*ring) poison(*verbs.WC)        {}
func (*Pool) checkFree(uint32)        {}
func (*Pool) checkPut(uint32)         {}
func (*region) checkDereg()           {}
