package hop

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProbe(t *testing.T) {
	cpus, err := Processors()
	if err != nil || len(cpus) < 2 {
		t.Skip("the probe takes two processors")
	}
	hop, err := Probe([2]int(cpus[:2]))
	require.NoError(t, err)
	require.Positive(t, hop)
}
