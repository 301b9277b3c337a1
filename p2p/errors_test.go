package p2p

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsOfCallsNameThePackageOnce: what is within them does so too where it stands alone.
func TestErrorsOfCallsNameThePackageOnce(t *testing.T) {
	loss := &PeerError{Ranks: []int{3}, Cause: invalidf("cut")}
	err := wrapf("shutdown: not all ranks have come: %w; and %w", loss, errNoContext)
	require.EqualError(t, err, "p2p: shutdown: not all ranks have come: rank 3 lost: invalid argument: cut; and "+
		strings.TrimPrefix(errNoContext.Error(), "p2p: "))
	found, ok := errors.AsType[*PeerError](err)
	require.True(t, ok)
	require.Equal(t, loss, found)
	require.ErrorIs(t, err, ErrInvalid)
}
