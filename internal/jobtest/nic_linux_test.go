//go:build !invariants && !race

package jobtest

import (
	"testing"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
)

func TestNICLeftOut(t *testing.T) {
	testlevel.SkipIfQuick(t)
	t.Setenv(softtest.NICs, "1")
	notOnNICs.StillFails(t, "")
}
