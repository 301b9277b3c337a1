package tmsrq

import (
	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/verbs"
)

// entryState says where an entry of the list is. move alone changes it, as entryMoves allows.
//
//	state    entered by           goes on to
//	free     settle               listed
//	         in tagList.free: the device owes nothing for it
//	listed   Add                  matched, removed
//	         the device's, and tagList.byID finds it: its ADD is posted, and no match is known
//	matched  matchFrom            ended
//	         as listed, and the sink was told of the match; the last completion is to come
//	ended    end                  free
//	         its buffers are free and its id finds nothing: the sink was told how it ends. The
//	         completion of its ADD or DEL is to come, or its DEL waits for room
//	removed  Drop, deleted        free
//	         as ended, but taken out without a match: by force, or by a Del that was first
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

// entryMoves are the states that may follow each.
var entryMoves = [entryStates][]entryState{
	entryFree:    {entryListed},
	entryListed:  {entryMatched, entryRemoved},
	entryMatched: {entryEnded},
	entryEnded:   {entryFree},
	entryRemoved: {entryFree},
}

// entry is a slot of the list.
type entry struct {
	id     uint64
	gen    uint32 // how often the slot was used, so that late completions are told
	handle uint32 // the device's name of it
	state  entryState
	owed   int8 // completions to come, as the device counts them (TMO 3.4); 0 when free

	// Beside the state, since a match does not end them:
	deleting bool // Del was called, and the sink is to be told the outcome
	queued   bool // its DEL is in ops.waiting

	// Once matched:
	marked  bool // immediate data came
	partial bool // RNDV_INCOMPLETE came
	src     int
	tag     uint64
	appCtx  uint32
	imm     uint32
	bad     error // why the receive fails, whatever comes

	// While listed or matched:
	buf     []byte // the receive's
	landing []byte // where the device writes: buf or the bounce buffer
	bounce  int32  // -1: none
	mr      verbs.MR
}

// open says that the device may still match or complete its receive.
func (e *entry) open() bool { return e.state == entryListed || e.state == entryMatched }

// move takes an entry to another state.
func (l *tagList) move(e *entry, to entryState) {
	if invariant.Enabled {
		l.checkMove(e, to, entryMoves[e.state])
	}
	e.state = to
}
