package p2p

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tagmatch/tagmatch/bootstrap"
	"github.com/tagmatch/tagmatch/internal/ranks"
	"github.com/tagmatch/tagmatch/progress"
)

// Conditions to test with errors.Is; the text of a returned error has the facts. A feature that a
// device lacks is errors.ErrUnsupported of the standard library.
var (
	ErrTruncated = progress.ErrTruncated // message longer than the buffer
	ErrCanceled  = progress.ErrCanceled  // ended by Cancel; an ended context gives its own error
	// ErrMaybeDelivered is a Send's error beside that of its context: the receiver did not answer,
	// and may have the message. No receive ends so, see World.Irecv.
	ErrMaybeDelivered = progress.ErrMaybeDelivered
	ErrPeerLost       = progress.ErrPeerLost // a rank is lost: any *PeerError
	ErrAborted        = progress.ErrAborted  // a rank, or the launcher, has ended the job by Abort
	ErrClosed         = progress.ErrClosed   // the World, Comm or Queue was closed
	ErrFull           = progress.ErrFull     // Config.SendLimit: wait for sends, or Room; too many Comms
	ErrInactive       = progress.ErrInactive // request already completed, Message used up or withdrawn; -tags invariants names its calls
	ErrInvalid        = progress.ErrInvalid  // wrong argument
	// ErrFault ends an operation on a message above Config.EagerLimit whose buffer was unmapped or
	// protected before its end. Of a send the receive of its message ends so too; a receive whose
	// buffer cannot be written has taken the message, and the send succeeds. The two ranks go on.
	// A shorter message is copied as by the program itself: without the memory its process ends.
	// Where a send buffer vanishes while a packet of it is on its way into a socket, the connection
	// ends; while it is copied into shared memory, the process.
	ErrFault = progress.ErrFault
	// ErrRevoked ends operations on a Comm that Comm.Revoke was called for, at any of its ranks.
	ErrRevoked = errors.New("communicator revoked")
	// ErrGaveUp ends a Shrink or NewComm that another rank has left before all had called it.
	ErrGaveUp   = errors.New("another rank has given up")
	ErrProtocol = progress.ErrProtocol // of two ranks one broke the protocol; the text says which, and what the finder saw
)

// prefix begins the text of every error that a call returns, except a context's own. OpError,
// PeerError, conditionError and wrapf add it; the errors that they wrap have none, or lose it.
const prefix = "p2p: "

// bareError is an error without the prefix, within the text of another one.
type bareError struct{ error }

func (e bareError) Error() string {
	return strings.ReplaceAll(strings.TrimPrefix(e.error.Error(), prefix), "\n"+prefix, "\n")
}

func (e bareError) Unwrap() error { return e.error }

// wrapf is fmt.Errorf with the prefix.
func wrapf(format string, args ...any) error {
	for i := range args {
		if err, ok := args[i].(error); ok {
			args[i] = bareError{err}
		}
	}
	return fmt.Errorf(prefix+format, args...)
}

// OpError names the operation between two ranks that failed: `p2p: recv from 3, tag 0x7: message
// longer than the buffer: 16 bytes into 8`. Where the ranks of a Comm are not those of the World,
// the text has both: `p2p: send to 0 (rank 1 of the World), tag 0x7: rank 1 of the World lost`.
type OpError struct {
	Op   string // "send", "recv", "probe" or "mprobe"
	Rank int    // the peer, or AnySource; of calls on a Comm a rank in the Comm
	Tag  Tag
	Err  error

	group *group // of the Comm; nil: Rank is a rank in the World
}

func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString(prefix + e.Op)
	switch {
	case e.Op != opSend && e.Rank == AnySource:
		b.WriteString(" from any")
	case e.Op != opSend:
		b.WriteString(" from " + strconv.Itoa(e.Rank))
	default:
		b.WriteString(" to " + strconv.Itoa(e.Rank))
	}
	if e.group != nil && uint(e.Rank) < uint(len(e.group.members)) {
		fmt.Fprintf(&b, " (rank %d of the World)", e.group.world(e.Rank))
	}
	if e.Tag == AnyTag {
		b.WriteString(", any tag: ")
	} else {
		fmt.Fprintf(&b, ", tag %#x: ", uint64(e.Tag))
	}
	b.WriteString(e.reason())
	return b.String()
}

// reason is the text of Err. Beside a rank in a Comm it says that its ranks are those of the World.
func (e *OpError) reason() string {
	text := bareError{e.Err}.Error()
	if e.group == nil {
		return text
	}
	if peer, ok := e.Err.(*PeerError); ok {
		return peer.text(" of the World")
	}
	if by, ok := strings.CutPrefix(text, abortedByRank); ok { // perhaps another rank's text
		rank, rest, _ := strings.Cut(by, " ")
		return abortedByRank + rank + " of the World " + rest
	}
	return text
}

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }

// Names of operations in an OpError.
const (
	opSend = "send"
	opRecv = "recv"
)

// PeerError is in the chain of every error that a lost rank causes; it matches ErrPeerLost. In its
// Cause errors.Is never finds what would tell of the caller's own doing: context.DeadlineExceeded,
// context.Canceled, os.ErrDeadlineExceeded, ErrCanceled, ErrMaybeDelivered, ErrClosed.
//
// A rank that gives up another one reports that to it through the launcher's store. Both end their
// operations with each other, with the Cause that the first of them detected. Messages that have
// arrived can still be received, but none behind one of the same Comm, or a raw one, that had no
// receive and whose bytes were still at its sender.
type PeerError struct {
	Ranks []int // in the World
	Cause error // what was detected, in words: its process ended, the connection broke, silence...
}

func (e *PeerError) Error() string { return prefix + e.text("") }

// text is the error without the package's name, and with whose ranks it lists.
func (e *PeerError) text(whose string) string {
	s := ranks.List(e.Ranks) + whose + " lost"
	if e.Cause == nil {
		return s
	}
	return s + ": " + bareError{e.Cause}.Error()
}

// Unwrap is for errors.Is and errors.As. It does not return Cause itself.
func (e *PeerError) Unwrap() error { return (*progress.PeerError)(e).Unwrap() }

// Is makes every PeerError match ErrPeerLost.
func (e *PeerError) Is(target error) bool { return target == ErrPeerLost }

// departed is the cause of a loss that the launcher's store reports.
func departed(reason string) error {
	if reason == bootstrap.ReasonLeft {
		return errors.New("it has closed its World while this rank still counted on it")
	}
	return errors.New(strings.TrimPrefix(reason, "was lost: "))
}

// opError wraps the engine's error of an operation; g is the group of its Comm.
func opError(op string, rank int, tag Tag, g *group, err error) error {
	if own, ok := err.(*OpError); ok {
		return own // of a request that failed before it was posted
	}
	return &OpError{op, rank, tag, fromEngine(err), g}
}

// fromEngine converts an engine's PeerError to this package's.
func fromEngine(err error) error {
	var peer *progress.PeerError
	if errors.As(err, &peer) {
		return (*PeerError)(peer)
	}
	return err
}

// conditionError is one of the conditions above, with its facts.
type conditionError struct {
	cond error
	text string
}

func (e *conditionError) Error() string { return prefix + e.cond.Error() + ": " + e.text }
func (e *conditionError) Unwrap() error { return e.cond }

func errorf(cond error, format string, args ...any) error {
	return &conditionError{cond, fmt.Sprintf(format, args...)}
}

func invalidf(format string, args ...any) error { return errorf(ErrInvalid, format, args...) }

var errNoContext = invalidf("the context is nil: use context.Background where nothing should end the call")

// errCommClosed is the error of calls on a Comm that is closed, and of the receives that its Close
// ends.
var errCommClosed error = &closedError{}

type closedError struct{}

func (*closedError) Error() string { return prefix + "communicator closed" }
func (*closedError) Unwrap() error { return ErrClosed }

// stopped reports whether err is the error of a wait that ctx ended.
func stopped(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (err == ctx.Err() || err == context.Cause(ctx))
}
