package soft_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// loopOpener opens devices on a fabric of their own.
func loopOpener(opts soft.FabricOptions) verbstest.Opener { return tagOpener(opts, soft.TMConfig{}) }

func TestLoop(t *testing.T) {
	t.Run("immediate", func(t *testing.T) { verbstest.Run(t, loopOpener(soft.FabricOptions{})) })
	t.Run("direct", func(t *testing.T) { verbstest.Run(t, loopOpener(soft.FabricOptions{Direct: true})) })
	for seed := range uint64(4) {
		t.Run(fmt.Sprintf("seed%d", seed), func(t *testing.T) {
			verbstest.Run(t, loopOpener(soft.FabricOptions{Seed: seed, MaxDelay: 3, MaxBurst: 3, MaxRefuse: 2, MaxPayload: 1024, Queue: 8,
				Step: 10 * time.Microsecond}))
		})
	}
}
