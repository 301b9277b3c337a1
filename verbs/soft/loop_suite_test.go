package soft_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// tagOpener opens devices with knobs on a fabric of their own.
func tagOpener(opts softtest.FabricOptions, tm softtest.TM) verbstest.Opener {
	return func(t *testing.T, n int) []verbs.Device {
		f := softtest.NewFabric(opts)
		var out []verbs.Device
		for i := range n {
			d, err := soft.Open(softtest.WithTM(soft.Config{Name: fmt.Sprintf("loop%d", i), Fabric: f, Rank: i}, tm))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			out = append(out, d)
		}
		return out
	}
}

// tagOptions tells the suite of the knobs.
func tagOptions(f softtest.FabricOptions, tm softtest.TM) verbstest.TagOptions {
	return verbstest.TagOptions{InitialCount: uint32(tm.InitialCount), MTU: tm.MTU, Strict: tm.Strict, Dormant: tm.LiveGoDormant,
		RecvUnexpected: tm.RecvUnexpected, TwoIncomplete: tm.TwoIncomplete, OpenReads: f.Direct, SyncReqOfDriver: tm.QuirkSyncReq}
}

// TestTagKnobs runs the tag-matching suite over the devices that TMO 9 thinks possible.
func TestTagKnobs(t *testing.T) {
	testlevel.SkipIfQuick(t)
	rough := softtest.FabricOptions{Seed: 11, MaxDelay: 3, MaxBurst: 3, MaxRefuse: 2, MaxPayload: 1024, Queue: 8, Step: 10 * time.Microsecond}
	direct := softtest.FabricOptions{Direct: true}
	for name, c := range map[string]struct {
		fabric softtest.FabricOptions
		tm     softtest.TM
	}{
		"wrap":    {direct, softtest.TM{InitialCount: 65530}},
		"mlx5":    {direct, softtest.TM{QuirkSyncReq: true, RecvUnexpected: true, TwoIncomplete: true, MTU: 64}},
		"strict":  {direct, softtest.TM{Strict: true, InitialCount: 65000}},
		"dormant": {direct, softtest.TM{LiveGoDormant: true, InitialCount: 40000, MTU: 2000}},
		"late":    {direct, softtest.TM{Seed: 3, DelayOps: 4, DelayData: 5, DelayFIN: 6, InitialCount: 65000}},
		"rough":   {rough, softtest.TM{Seed: 4, DelayOps: 9, DelayData: 9, DelayFIN: 9, InitialCount: 65500, TwoIncomplete: true}},
	} {
		t.Run(name, func(t *testing.T) { verbstest.RunTags(t, tagOpener(c.fabric, c.tm), tagOptions(c.fabric, c.tm)) })
	}
}

func TestLoop(t *testing.T) {
	run := func(name string, f softtest.FabricOptions, tm softtest.TM) {
		t.Run(name, func(t *testing.T) { verbstest.Run(t, tagOpener(f, tm), tagOptions(f, tm)) })
	}
	run("immediate", softtest.FabricOptions{}, softtest.TM{})
	run("direct", softtest.FabricOptions{Direct: true}, softtest.TM{})
	run("untagged", softtest.FabricOptions{}, softtest.TM{MaxNumTags: -1})
	seeds := uint64(4)
	if testlevel.Quick() {
		seeds = 1
	}
	for seed := range seeds {
		rough := softtest.FabricOptions{Seed: seed, MaxDelay: 3, MaxBurst: 3, MaxRefuse: 2, MaxPayload: 1024, Queue: 8, Step: 10 * time.Microsecond}
		run(fmt.Sprintf("seed%d", seed), rough, softtest.TM{InitialCount: 65000}) // so that the counts wrap soon
	}
}
