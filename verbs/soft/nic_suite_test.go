package soft_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// leftOut are the rules and scenarios of the suite that do not hold on devices with such habits.
func leftOut(h softtest.Habits) testlevel.LeftOut {
	l := testlevel.LeftOut{}
	add := func(why string, names ...string) {
		for _, name := range names {
			l[name] = why
		}
	}
	if h.NoEvents {
		add("no event tells of a queue pair that fails", "8.3/last-wqe", "7.2/55-teardown")
	}
	if h.Tags {
		add("the error of a receive names another, and it need not end",
			"2.3/rights", "3.1/empty-list", "3.4/debt", "4.4/error", "7.2/32-too-long", "7.2/35-zero-length",
			"7.2/36-empty-rendezvous", "7.2/44-fin-lost", "7.2/46-receiver-dies", "7.2/47-sender-dies", "7.2/49-bad-key")
	}
	return l
}

// habitOpener opens devices with habits on a fabric of their own, which has a virtual clock.
func habitOpener(h softtest.Habits) verbstest.Opener {
	return func(t *testing.T, n int) []verbs.Device {
		f := softtest.NewFabric(softtest.FabricOptions{Step: 10 * time.Microsecond})
		var out []verbs.Device
		for i := range n {
			d := must(soft.Open(softtest.WithHabits(soft.Config{Name: fmt.Sprintf("loop%d", i), Fabric: f, Rank: i}, h)))
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			out = append(out, d)
		}
		return out
	}
}

// habitOptions tells the suite of such devices.
func habitOptions(h softtest.Habits) verbstest.TagOptions {
	return verbstest.TagOptions{Unnamed: h.Tags, Silent: h.Silence > 0, NoEvents: h.NoEvents, LeftOut: leftOut(h)}
}

// TestNIC runs the device suite with all habits of NICs, and with each by itself.
func TestNIC(t *testing.T) {
	verbstest.Run(t, habitOpener(softtest.AllHabits()), habitOptions(softtest.AllHabits()))
}

func TestNICLeftOut(t *testing.T) {
	testlevel.SkipIfQuick(t)
	leftOut(softtest.AllHabits()).StillFails(t, "TestNIC")
	for name, h := range softtest.EachHabit() {
		t.Run(name, func(t *testing.T) { leftOut(h).StillFails(t, "TestEachHabit/"+name) })
	}
}

func TestEachHabit(t *testing.T) {
	testlevel.SkipIfQuick(t)
	for name, h := range softtest.EachHabit() {
		t.Run(name, func(t *testing.T) { verbstest.Run(t, habitOpener(h), habitOptions(h)) })
	}
}

// TestHabitLateFlushWakes: a device that sleeps goes on by itself.
func TestHabitLateFlushWakes(t *testing.T) {
	d := must(soft.Open(softtest.WithHabits(soft.Config{Fabric: soft.NewFabric()}, softtest.Habits{LateFlush: 5})))
	p := newPair(t, d, d)
	_, err := p.q1.PostSend(&verbs.SendWR{Opcode: verbs.WRSend})
	require.NoError(t, err)
	require.NoError(t, p.q1.Modify(&verbs.QPAttr{State: verbs.QPSErr}, verbs.QPAttrState))
	late := time.AfterFunc(testlevel.Patience(10*time.Second), p.channel.Wake)
	var wc [4]verbs.WC
	for n := 0; n == 0; {
		require.NoError(t, p.cq.Arm(false))
		if n = must(verbstest.Poll(p.cq, wc[:])); n == 0 {
			require.NoError(t, p.channel.Wait())
		}
	}
	require.True(t, late.Stop(), "nothing has woken it")
}
