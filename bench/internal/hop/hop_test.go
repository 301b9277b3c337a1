package hop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/cpus"
)

func TestProbe(t *testing.T) {
	list, err := cpus.Allowed()
	if err != nil || len(list) < 2 {
		t.Skip("the probe takes two processors")
	}
	hop, err := Probe([2]int(list[:2]))
	require.NoError(t, err)
	require.Positive(t, hop)
}
