package tmsrq

import (
	"github.com/tagmatch/tagmatch/verbs"
)

// entryState is the state of an entry of the list. Only tagList.move changes it, as entryMoves
// allows.
//
//	state    entered by           goes on to
//	free     settle               listed
//	         The slot is in tagList.free, and the device owes no completion for it.
//	listed   Add                  matched, removed
//	         The device has the entry: its ADD is posted, and no match is known. tagList.byID
//	         finds it by the receive's id.
//	matched  matchFrom            ended
//	         As listed, and Sink.Matched was called. The last completion of the receive has not
//	         been polled.
//	ended    end                  free
//	         The receive has ended: Sink.Delivered or Sink.Incomplete is called, its buffers are
//	         released, and byID does not find it. The completion of its ADD or DEL has not been
//	         polled, or its DEL waits for room.
//	removed  ForceDel, deleted    free
//	         As ended, but the entry was removed without a match: by ForceDel, or by a Del that
//	         the device executed before a match.
type entryState uint8

const (
	entryFree entryState = iota
	entryListed
	entryMatched
	entryEnded
	entryRemoved
	entryStates
)

func (s entryState) String() string {
	return [entryStates]string{"free", "listed", "matched", "ended", "removed"}[s]
}

// entryMoves are the states that may follow each state.
var entryMoves = [entryStates][]entryState{
	entryFree:    {entryListed},
	entryListed:  {entryMatched, entryRemoved},
	entryMatched: {entryEnded},
	entryEnded:   {entryFree},
	entryRemoved: {entryFree},
}

// entry is a slot of the tag list: a receive that the engine has added, or nothing.
type entry struct {
	id     uint64 // the engine's name of the receive
	gen    uint32 // how often the slot was used, modulo 2^28: it tells late completions from those of the next receive
	handle uint32 // the device's name of the entry, for its DEL
	state  entryState
	// owed is the number of completions that the device owes for the entry, as the device counts
	// them to decide when a handle may be reused (TMO 3.4): one for the receive, and one for each
	// signalled ADD or DEL. 0 when free.
	owed int8

	// Independent of the state, since a match does not end them:
	deleting bool // Del was called, and Sink.Deleted not yet
	queued   bool // the DEL of the entry is in ops.waiting

	// Valid from the match to the end of the receive:
	marked  bool   // a completion had immediate data: imm
	partial bool   // a completion had status RNDV_INCOMPLETE: software reads the data
	src     int    // rank that sent the message; -1: not known, and bad is set
	tag     uint64 // of the message
	appCtx  uint32 // of the message
	imm     uint32 // with marked; host byte order
	bad     error  // that the receive will end with, whatever else completes; nil: none

	// Valid in states listed and matched; released then:
	buf     []byte   // of the receive; the user's
	landing []byte   // where the device writes the message: buf, or a bounce buffer
	bounce  int32    // slot of the bounce buffer in tagList.bounce; -1: none
	mr      verbs.MR // registration of buf, nil with a bounce buffer
}

// open reports whether the device may still match or complete the receive.
func (e *entry) open() bool { return e.state == entryListed || e.state == entryMatched }

// move changes the state of an entry.
func (l *tagList) move(e *entry, to entryState) {
	l.checkMove(e, to, entryMoves[e.state])
	e.state = to
}
