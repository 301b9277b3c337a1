//go:build !invariants

package tmsrq

import "github.com/tagmatch/tagmatch/verbs"

// What a build with -tags invariants checks is in check.go. This is what is left of it in others:
// nothing.

func (*Transport) checkClass(*verbs.WC, []byte)             {}
func (*tagList) checkMove(*entry, entryState, []entryState) {}
func (*tagList) checkDone(uint32)                           {}
func (*tagList) check()                                     {}
