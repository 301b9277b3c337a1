package links

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/transport/internal/format"
	"github.com/tagmatch/tagmatch/verbs"
)

// lossError explains the loss of a peer; p2p prefixes "rank 3 lost: ". It wraps the device's error
// for errors.Is and errors.As.
type lossError struct {
	words string
	cause error
}

func (e *lossError) Error() string { return e.words }
func (e *lossError) Unwrap() error { return e.cause }

const alike = "check that all ranks run the same build of the program"

// explained turns a device's error into a lossError, with the text that only the device knows where
// the user needs it; otherwise is the text for other errors.
func explained(err error, otherwise string) error {
	words := otherwise + " (" + err.Error() + ")"
	switch {
	case errors.Is(err, verbs.ErrProtocol):
		return violation(err)
	case errors.Is(err, verbs.ErrAccused):
		return accusation(err)
	case errors.Is(err, verbs.ErrPeerClosed):
		words = "it has closed its World while this rank still counted on it"
	case errors.Is(err, verbs.ErrPeerEnded):
		words = "its process has ended or was killed"
	case errors.Is(err, verbs.ErrRefused):
		words = "there is no connection to it, for a reason at one of the two ends (" + err.Error() + ")"
	case errors.Is(err, verbs.ErrPeerFailed):
		words = "it has given up its connection to this rank: see what it reports"
	case errors.Is(err, verbs.ErrUnreachable):
		words = "it cannot be reached: check that its process runs, and that the network between the two hosts lets connections " +
			"through (" + err.Error() + ")"
	case errors.Is(err, syscall.EHOSTUNREACH):
		words = "there is no way to it any more, as when its process has ended (" + err.Error() + ")"
	case errors.Is(err, syscall.ENOMEM):
		words = "there is no memory for the connection to it: look at the host, and at the limit of its container (" + err.Error() + ")"
	}
	return &lossError{words, err}
}

// violation is the error of a link whose peer has broken the protocol in the way that err says.
func violation(err error) error { return fmt.Errorf("%w (%s): %w", transport.ErrProtocol, alike, err) }

// accusation is the error of a link that the peer has broken off because of a violation by this
// end; err is how the device says so.
func accusation(err error) error {
	return &lossError{transport.ErrAccused.Error(), errors.Join(transport.ErrAccused, err)}
}

// ofEnd is the error of a link that the peer says to have refused or ended.
func ofEnd(e *format.End) error {
	if e.Accuses {
		err := accusation(verbs.ErrAccused)
		return &lossError{fmt.Sprintf("%v (%q)", err, e.Reason), err}
	}
	return &lossError{fmt.Sprintf("it has given up its connection to this rank: %q", e.Reason), verbs.ErrPeerFailed}
}

// ofStatus explains a completion with an error status.
func ofStatus(s verbs.WCStatus) error {
	words, err := "the device of this rank failed: report this, with the status that errors.As (*verbs.StatusError) gives", &verbs.StatusError{Status: s}
	switch s {
	case verbs.WCWRFlushErr:
		words = "the connection to it ended, as when its process ends"
	case verbs.WCRetryExcErr, verbs.WCRespTimeoutErr:
		words = "it does not answer: its process has ended, or the network to it is cut"
	case verbs.WCRNRRetryExcErr:
		words = "it has taken no messages for too long: check that its process runs and is not stopped"
	case verbs.WCRemInvReqErr, verbs.WCRemAccessErr:
		return accusation(err)
	case verbs.WCBadRespErr:
		return violation(err)
	case verbs.WCRemOpErr, verbs.WCRemAbortErr:
		words = "it refuses what this rank asks of it: " + alike
	}
	return &lossError{words, err}
}

// ofEvent explains an asynchronous event about a queue pair.
func ofEvent(ev *verbs.AsyncEvent) error {
	err := orUnknown(ev.Err)
	if ev.Type == verbs.EventQPReqErr || ev.Type == verbs.EventQPAccessErr {
		return &lossError{fmt.Sprintf("%v: what it asks of this rank is refused: %s", transport.ErrProtocol, alike), errors.Join(transport.ErrProtocol, err)}
	}
	if st, ok := errors.AsType[*verbs.StatusError](err); ok { // of a request of the device's own
		return ofStatus(st.Status)
	}
	return explained(err, "the connection to it broke: check that its process runs, the network between the two hosts, and that "+
		"all ranks run the same build of the program")
}
