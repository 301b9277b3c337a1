package rendezvous

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Conditions to test with errors.Is. They, and all errors here, speak for package bootstrap.
var (
	ErrConfig   = errors.New("bootstrap: wrong configuration")
	ErrSecret   = errors.New("bootstrap: job secrets differ")
	ErrRefused  = errors.New("bootstrap: refused by rank 0")
	ErrVersion  = errors.New("bootstrap: protocol versions differ")
	ErrPeerLost = errors.New("bootstrap: rank lost")
	ErrAborted  = errors.New("bootstrap: job aborted")
	ErrClosed   = errors.New("bootstrap: closed")
	ErrNotFound = errors.New("bootstrap: key not found")
	ErrProtocol = errors.New("bootstrap: protocol violation")
)

// RankError names the rank whose loss, departure or surrender made a call fail. It is an
// ErrPeerLost.
type RankError struct {
	Rank   int
	Reason string
}

func (e *RankError) Error() string        { return fmt.Sprintf("bootstrap: rank %d %s", e.Rank, e.Reason) }
func (e *RankError) Is(target error) bool { return target == ErrPeerLost }

// AbortError is what calls return after an Abort. It is an ErrAborted.
type AbortError struct{ AbortInfo }

func (e *AbortError) Error() string {
	who := "the launcher"
	if e.Rank >= 0 {
		who = "rank " + strconv.Itoa(e.Rank)
	}
	return fmt.Sprintf("bootstrap: job aborted by %s with code %d: %s", who, e.Code, e.Reason)
}

func (e *AbortError) Is(target error) bool { return target == ErrAborted }

// conditionError is one of the conditions above with a text of its own.
type conditionError struct {
	text string
	cond error
}

func (e *conditionError) Error() string { return "bootstrap: " + e.text }
func (e *conditionError) Unwrap() error { return e.cond }

// Errorf returns an error that is cond, with a text of its own.
func Errorf(cond error, format string, args ...any) error {
	return &conditionError{fmt.Sprintf(format, args...), cond}
}

// Reason is what others are told of err: a line of at most maxReason bytes.
func Reason(err error) string { return cut(bare(err), maxReason) }

// cut shortens s to at most n bytes.
func cut(s string, n int) string { return s[:min(len(s), n)] }

// bare is err's text without the package's name, to be put into a longer text.
func bare(err error) string { return strings.TrimPrefix(err.Error(), "bootstrap: ") }
