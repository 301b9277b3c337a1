//go:build !invariants

package progress

import "io"

// What an engine checks of itself, and of the program that uses it, is in check_*.go, for builds
// with -tags invariants. This is what is left of it in others: nothing.

type (
	// note is what such a build knows of an operation.
	note struct{}
	// noteKind is its kind of operation.
	noteKind uint8

	engineCheck struct{}
)

const (
	noteSend noteKind = iota
	noteRecv
	noteNull
	noteSendCall
	noteRecvCall
	noteProbeCall
	noteAllocCall
	noteFlush
	noteAbandoned
)

func (*Op) takeNote(noteKind)                  {}
func (*Op) born(noteKind, int, uint64, []byte) {}

func (note) awaited(int32)   {}
func (note) given(*Queue)    {}
func (note) ended(Status)    {}
func (note) outcome(error)   {}
func (note) vector([][]byte) {}
func (note) inactive() error { return ErrInactive }

func (*Op) poison() {}
func (*Op) clear()  {}

func (*slots) checkTaken(slot)      {}
func (*peer) checkLost()            {}
func (*engineCheck) dump(io.Writer) {}

func (*engineCheck) polled(*Engine, int)           {}
func (*engineCheck) received(*Engine, uint64, *Op) {}
func (*engineCheck) warnOpen(*Engine)              {}
func (*engineCheck) closed(*Engine)                {}
func (*engineCheck) enterPoll(*Engine)             {}
func (*engineCheck) leavePoll()                    {}
func (*engineCheck) callback(*Engine)              {}
func (*engineCheck) settle(*Engine, int)           {}
func (*engineCheck) counted(*offload)              {}
func (*engineCheck) found(*Op)                     {}
func (*engineCheck) dropped(slot)                  {}
func (*engineCheck) released(slot)                 {}
func (*engineCheck) reporting(*offload, uint32)    {}

func (op *Op) checkMove(to opState, allowed []opState) {}
