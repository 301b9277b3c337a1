package wait

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var bg = context.Background()

// op is an operation of a fake engine. It ends when fake.arrive says so, generation by generation.
type op struct{ Event }

func (*op) InFlight() uint64 { return 0 }

// fake is an engine with operations that end when they are told to, and its transport. It also is
// the Set that is tested, and its Lock.
type fake struct {
	Lock
	Set

	dev     sync.Mutex // of what follows
	arrived []*op      // that the next poll ends
	armed   bool
	waiting int    // goroutines in Wait
	stream  int    // so many polls find something else too
	onWait  func() // called by Wait once, without the lock; nil: nothing
	notify  chan struct{}

	armErr, waitErr error // of Arm and Wait; constant
	refused         bool  // guarded by the Lock
	awaits          int   // likewise
	disarms         int   // calls of Disarm; likewise
	victim          *op   // that a failure ends; constant
	failure         error // the first
}

func newFake(t *testing.T, cfg Config, set ...func(f *fake)) *fake {
	f := &fake{notify: make(chan struct{}, 1)}
	for _, set := range set {
		set(f)
	}
	f.Init(&f.Lock, (*fakeEngine)(f), (*fakeDevice)(f), cfg)
	f.locked(f.Start)
	t.Cleanup(func() {
		if !t.Failed() { // else perhaps with the lock
			f.locked(f.Stop)
		}
	})
	return f
}

// locked calls do with the lock held.
func (f *fake) locked(do func()) {
	f.Lock.Lock()
	defer f.Unlock()
	do()
}

// await waits for the present generation of o, and takes it unless ctx ends first. It waits as for
// an operation that nobody else can name, and otherwise, by turns.
func (f *fake) await(ctx context.Context, o *op) (err error) {
	gen := o.Gen()
	f.Lock.Lock()
	if f.awaits++; f.awaits%2 == 0 {
		var unmarked bool
		if unmarked, err = f.AwaitOwn(ctx, &o.Event, o); unmarked {
			o.SetEnded()
		}
	} else {
		err = f.Await(ctx, &o.Event, o, gen)
	}
	f.Unlock()
	if err == nil && !o.Take(gen) {
		return fmt.Errorf("generation %d has not ended", gen)
	}
	return err
}

// poll polls once, as Request.Test does.
func (f *fake) poll() { f.locked(func() { f.e.Poll() }) }

// arrive is the device's completion of o's present generation.
func (f *fake) arrive(o *op) {
	f.quietly(o)
	f.dev.Lock()
	if f.armed {
		f.armed = false
		(*fakeDevice)(f).Wake()
	}
	f.dev.Unlock()
}

// quietly is arrive without an event.
func (f *fake) quietly(o *op) {
	f.dev.Lock()
	f.arrived = append(f.arrived, o)
	f.dev.Unlock()
}

// asleep reports whether somebody is in Wait, armed and without a reason to wake up.
func (f *fake) asleep() bool {
	f.dev.Lock()
	defer f.dev.Unlock()
	return f.waiting == 1 && f.armed && len(f.notify) == 0
}

type fakeEngine fake

func (f *fakeEngine) Poll() int {
	f.AssertHeld("the fake engine")
	f.dev.Lock()
	arrived, others := f.arrived, 0
	f.arrived = nil
	if f.stream > 0 {
		f.stream--
		others = 1
	}
	f.dev.Unlock()
	for _, o := range arrived {
		f.End(&o.Event)
	}
	return len(arrived) + others
}

func (f *fakeEngine) Refused() bool { return f.refused }

func (f *fakeEngine) Broken() bool { return f.failure != nil }

func (f *fakeEngine) Fail(err error) {
	f.AssertHeld("the fake engine")
	if f.failure == nil {
		f.failure = err
		f.End(&f.victim.Event)
	}
}

type fakeDevice fake

func (d *fakeDevice) Arm() error {
	d.AssertHeld("the fake device")
	d.dev.Lock()
	d.armed = true
	d.dev.Unlock()
	return d.armErr
}

func (d *fakeDevice) Disarm() {
	d.AssertHeld("the fake device")
	d.disarms++
	d.dev.Lock()
	d.armed = false
	d.dev.Unlock()
}

func (d *fakeDevice) Wait() error {
	d.dev.Lock()
	if d.waiting++; d.waiting > 1 {
		panic("two goroutines in Wait")
	}
	onWait := d.onWait
	d.onWait = nil
	d.dev.Unlock()
	if onWait != nil {
		onWait()
	}
	if d.waitErr == nil {
		<-d.notify
	}
	d.dev.Lock()
	d.waiting--
	d.dev.Unlock()
	return d.waitErr
}

func (d *fakeDevice) Wake() {
	select {
	case d.notify <- struct{}{}:
	default:
	}
}

// modes runs a test with and without the progress goroutine, of waiters that poll and that park at
// once.
func modes(t *testing.T, run func(t *testing.T, cfg Config)) {
	for _, manual := range []bool{false, true} {
		for _, spin := range []time.Duration{0, -1} {
			t.Run(fmt.Sprintf("manual=%v spin=%v", manual, spin), func(t *testing.T) {
				run(t, Config{Manual: manual, SpinLimit: spin})
			})
		}
	}
}
