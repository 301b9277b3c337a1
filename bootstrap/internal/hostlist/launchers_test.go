//go:build linux && launchers

package hostlist

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAgainstSlurm compares random lists with what Slurm makes of them.
func TestAgainstSlurm(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	require.NoError(t, os.WriteFile(conf, []byte("ClusterName=x\nSlurmctldHost=localhost\nNodeName=a CPUs=1\nPartitionName=p Nodes=a\n"), 0o600))
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		list := random(rng)
		cmd := exec.Command("scontrol", "show", "hostnames", list)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", list, out)
		got, err := Expand(list)
		require.NoError(t, err, list)
		require.Equal(t, strings.Fields(string(out)), got, "%s, seed %d", list, seed)
	}
}

func random(rng *rand.Rand) string {
	var parts []string
	for range 1 + rng.IntN(3) {
		part := "n"
		for range rng.IntN(3) {
			low := rng.IntN(120)
			part += fmt.Sprintf("%c[%0*d-%d]", 'a'+rune(rng.IntN(26)), 1+rng.IntN(4), low, low+rng.IntN(12))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}
