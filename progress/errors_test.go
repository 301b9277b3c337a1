package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A loss is never the end of the caller's context, nor what else the caller itself did, whatever
// its cause wraps; but for that errors.Is and errors.As see the cause.
func TestLossIsNotTheCallersDoing(t *testing.T) {
	timedOut := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)}
	deadline := &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
	for _, own := range ownErrors {
		for _, cause := range []error{own, fmt.Errorf("dial: %w", own), errors.Join(io.EOF, own), deadline, fmt.Errorf("%w (%w)", own, io.EOF)} {
			require.NotErrorIs(t, peerError(1, cause), own)
			require.NotErrorIs(t, fmt.Errorf("send: %w", peerError(1, cause)), own)
			require.EqualError(t, peerError(1, cause), "rank 1 lost: "+cause.Error())
		}
	}
	require.ErrorIs(t, errors.Join(context.Canceled, peerError(1, io.EOF)), context.Canceled, "beside it")
	err := peerError(1, fmt.Errorf("dial: %w", timedOut))
	require.ErrorIs(t, err, ErrPeerLost)
	require.ErrorIs(t, err, syscall.ETIMEDOUT)
	require.NotErrorIs(t, err, syscall.ECONNRESET)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Same(t, timedOut, op)
	require.ErrorIs(t, peerError(1, protocolError("a lie")), ErrProtocol)
	require.NoError(t, errors.Unwrap(&PeerError{Ranks: []int{1}}))
}
