//go:build invariants

package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/invariant"
	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
)

// TestCheckLargeListThoroughly looks at everything at once where that is wanted.
func TestCheckLargeListThoroughly(t *testing.T) {
	_, _, _, srq := tagRig(t, hook.TM{})
	require.Greater(t, len(srq.tm.slots), invariant.SmallList)
	srq.tm.nfree--
	require.NotPanics(t, srq.tm.checkNow)
	invarianttest.Thorough(t)
	invarianttest.Violates(t, "tags", srq.tm.checkNow)
}
