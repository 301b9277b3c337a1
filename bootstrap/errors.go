package bootstrap

import "github.com/tagmatch/tagmatch/bootstrap/internal/rendezvous"

// Conditions to test with errors.Is.
var (
	ErrConfig   = rendezvous.ErrConfig   // wrong configuration
	ErrSecret   = rendezvous.ErrSecret   // job secrets differ
	ErrRefused  = rendezvous.ErrRefused  // by rank 0
	ErrVersion  = rendezvous.ErrVersion  // protocol versions differ
	ErrPeerLost = rendezvous.ErrPeerLost // a rank was lost or has left
	ErrAborted  = rendezvous.ErrAborted  // the job was aborted
	ErrClosed   = rendezvous.ErrClosed   // this Bootstrap was closed
	ErrNotFound = rendezvous.ErrNotFound // the rank had put nothing under the key
	ErrProtocol = rendezvous.ErrProtocol // protocol violation
)

// RankError has the Rank whose loss, departure or surrender made a call fail, and the Reason. It is
// an ErrPeerLost.
type RankError = rendezvous.RankError

// AbortError is what calls return after an Abort: its AbortInfo. It is an ErrAborted.
type AbortError = rendezvous.AbortError

func errorf(cond error, format string, args ...any) error {
	return rendezvous.Errorf(cond, format, args...)
}

func configErrorf(format string, args ...any) error { return errorf(ErrConfig, format, args...) }
