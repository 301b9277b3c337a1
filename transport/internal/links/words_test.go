package links

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/transport"
	"github.com/tagmatch/tagmatch/verbs"
)

// TestWords: the text of a loss, and the errors that it wraps.
func TestWords(t *testing.T) {
	refused := errors.New("connection refused")
	for _, c := range []struct {
		err, behind error
		want        string
	}{
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: fmt.Errorf("queue pair 3: %w", verbs.ErrPeerClosed)}), verbs.ErrPeerClosed,
			"it has closed its World while this rank still counted on it"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: verbs.ErrPeerEnded}), verbs.ErrPeerEnded, "its process has ended or was killed"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPAccessErr, Err: verbs.ErrPeerFailed}), transport.ErrProtocol,
			"peer broke the protocol: what it asks of this rank is refused: check that all ranks run the same build of the program"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: verbs.ErrPeerFailed}), verbs.ErrPeerFailed,
			"it has given up its connection to this rank: see what it reports"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: fmt.Errorf("tcp: %w to h:1: %w", verbs.ErrUnreachable, refused)}), refused,
			"it cannot be reached: check that its process runs, and that the network between the two hosts lets connections through " +
				"(tcp: cannot connect to h:1: connection refused)"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: fmt.Errorf("tcp: %w to h:1: %w: TLS refused by the other end", verbs.ErrUnreachable, verbs.ErrRefused)}),
			verbs.ErrUnreachable, "there is no connection to it, for a reason at one of the two ends (tcp: cannot connect to h:1: refused: TLS refused by the other end)"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: fmt.Errorf("ring: %w", syscall.ENOMEM)}), syscall.ENOMEM,
			"there is no memory for the connection to it: look at the host, and at the limit of its container (ring: cannot allocate memory)"},
		{explained(fmt.Errorf("tell: %w", syscall.EHOSTUNREACH), "telling failed"), syscall.EHOSTUNREACH,
			"there is no way to it any more, as when its process has ended (tell: no route to host)"},
		{explained(refused, "telling failed"), refused, "telling failed (connection refused)"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: refused}), refused, "the connection to it broke: check that its process runs, " +
			"the network between the two hosts, and that all ranks run the same build of the program (connection refused)"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPReqErr, Err: refused}), refused,
			"peer broke the protocol: what it asks of this rank is refused: check that all ranks run the same build of the program"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPReqErr}), nil,
			"peer broke the protocol: what it asks of this rank is refused: check that all ranks run the same build of the program"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: fmt.Errorf("tcp: %w: two heads", verbs.ErrProtocol)}), transport.ErrProtocol,
			"peer broke the protocol (check that all ranks run the same build of the program): tcp: protocol violation: two heads"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: fmt.Errorf("tcp: %w", verbs.ErrAccused)}), transport.ErrProtocol,
			"it says that this rank broke the protocol: check that all ranks run the same build of the program"},
		{ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: fmt.Errorf("%w to h:1: %w", verbs.ErrUnreachable, verbs.ErrAccused)}), transport.ErrAccused,
			"it says that this rank broke the protocol: check that all ranks run the same build of the program"},
		{ofStatus(verbs.WCRemAccessErr), transport.ErrAccused,
			"it says that this rank broke the protocol: check that all ranks run the same build of the program"},
		{ofStatus(verbs.WCBadRespErr), transport.ErrProtocol,
			"peer broke the protocol (check that all ranks run the same build of the program): verbs: bad response error"},
	} {
		require.EqualError(t, c.err, c.want)
		if c.behind != nil {
			require.ErrorIs(t, c.err, c.behind)
		}
	}
	for _, err := range []error{verbs.ErrPeerClosed, verbs.ErrPeerEnded, verbs.ErrPeerFailed, verbs.ErrUnreachable, syscall.ENOMEM, refused} {
		require.NotErrorIs(t, ofEvent(&verbs.AsyncEvent{Type: verbs.EventQPFatal, Err: err}), transport.ErrProtocol)
	}
	for s := verbs.WCLocLenErr; s <= verbs.WCTMRndvIncomplete; s++ {
		err := ofStatus(s)
		status, ok := errors.AsType[*verbs.StatusError](err)
		require.True(t, ok)
		require.Equal(t, s, status.Status)
		require.True(t, s == verbs.WCBadRespErr || !strings.Contains(err.Error(), s.String()), err)
	}
	require.EqualError(t, ofStatus(verbs.WCRetryExcErr), "it does not answer: its process has ended, or the network to it is cut")
}
