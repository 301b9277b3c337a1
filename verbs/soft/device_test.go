package soft_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

func TestLoop(t *testing.T) {
	run := func(name string, f soft.FabricOptions, tm softtest.TM) {
		t.Run(name, func(t *testing.T) { verbstest.Run(t, tagOpener(f, tm), tagOptions(f, tm)) })
	}
	run("immediate", soft.FabricOptions{}, softtest.TM{})
	run("direct", soft.FabricOptions{Direct: true}, softtest.TM{})
	run("untagged", soft.FabricOptions{}, softtest.TM{MaxNumTags: -1})
	for seed := range uint64(4) {
		rough := soft.FabricOptions{Seed: seed, MaxDelay: 3, MaxBurst: 3, MaxRefuse: 2, MaxPayload: 1024, Queue: 8, Step: 10 * time.Microsecond}
		run(fmt.Sprintf("seed%d", seed), rough, softtest.TM{InitialCount: 65000}) // so that the counts wrap soon
	}
}
