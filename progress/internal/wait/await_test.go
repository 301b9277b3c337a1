package wait

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/internal/testlevel"
)

var rounds = flag.Int("rounds", 0, "rounds of the races of parking and waking; 0 is as many as the level of the tests has")

func roundsOr(n int) int {
	if *rounds != 0 {
		return *rounds
	}
	if !testlevel.CI() {
		return n / 10
	}
	return n
}

// pingPong has a goroutine of each of two engines wait for the other's message, n times. The
// messages come while the waiter polls, just as it parks, or, now and then, once it has parked.
func pingPong(t *testing.T, a, b *fake, n int) {
	var ping, pong op
	echo, before := make(chan error, 1), uint64(0) // parks of a
	parks := func() (n uint64) {
		a.locked(func() { n = a.parks })
		return n
	}
	delay := func(i int) {
		for range i * 7 % 4096 {
			a.polling.Load()
		}
	}
	go func() {
		var err error
		for i := 0; i < n && err == nil; i++ {
			err = b.await(bg, &ping)
			delay(i)
			for i%256 == 0 && parks() == before {
				runtime.Gosched()
			}
			a.arrive(&pong)
		}
		echo <- err
	}()
	for i := range n {
		delay(i * 3)
		before = parks()
		b.arrive(&ping)
		require.NoError(t, a.await(bg, &pong))
	}
	require.NoError(t, <-echo)
}

// Parking at once makes each message a race between going to sleep and being woken.
func TestParkWakeRace(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		a, b := newFake(t, cfg), newFake(t, cfg)
		pingPong(t, a, b, roundsOr(20000))
		require.NotZero(t, a.parks)
	})
}

func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	modes(t, func(t *testing.T, cfg Config) {
		pingPong(t, newFake(t, cfg), newFake(t, cfg), roundsOr(10000))
	})
}

// Whoever was woken runs before much of a stream of other messages is received, also where there is
// one processor.
func TestWokenRunsBesideStream(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const stream = 100_000
	f := newFake(t, Config{SpinLimit: -1})
	for range 20 {
		o, left := &op{}, make(chan int)
		go func() {
			if err := f.await(bg, o); err != nil {
				t.Error(err)
			}
			f.dev.Lock()
			defer f.dev.Unlock()
			n := f.stream
			f.stream = 0
			left <- n
		}()
		parked := func() (yes bool) {
			f.locked(func() { yes = f.parked.head != nil })
			return yes && f.asleep()
		}
		require.Eventually(t, parked, testlevel.Patience(10*time.Second), 100*time.Microsecond)
		f.dev.Lock()
		f.stream = stream
		f.dev.Unlock()
		f.arrive(o)
		require.Greater(t, <-left, stream-1000)
	}
}

// Many goroutines wait on one engine at once, each for its own messages; the role of polling goes
// from hand to hand and must never be lost, whoever leaves and why.
func TestConcurrentWaiters(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		const workers = 8
		f := newFake(t, cfg)
		n := roundsOr(1000)
		var wg sync.WaitGroup
		for w := range workers {
			o, next := &op{}, make(chan struct{})
			wg.Go(func() {
				for range next {
					runtime.Gosched() // its waiter may have parked by then
					f.arrive(o)
				}
			})
			wg.Go(func() {
				defer close(next)
				rng := rand.New(rand.NewPCG(uint64(w), 0))
				for range n {
					next <- struct{}{}
					awaitSomehow(t, rng, f, o)
				}
			})
		}
		wg.Wait()
		require.Nil(t, f.parked.head)
		require.False(t, f.polling.Load())
	})
}

// awaitSomehow waits for o by one of the ways there are, deadlines that end in the middle included.
func awaitSomehow(t *testing.T, rng *rand.Rand, f *fake, o *op) {
	switch rng.IntN(4) {
	case 0:
		ctx, cancel := context.WithTimeout(bg, time.Duration(rng.IntN(100))*time.Microsecond)
		err := f.await(ctx, o)
		cancel()
		if err == nil {
			return
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case 1:
		f.poll()
	case 2:
		if !f.cfg.Manual {
			var done <-chan struct{}
			f.locked(func() { done = f.Done(&o.Event, o.Gen()) })
			<-done
		}
	}
	if err := f.await(bg, o); err != nil {
		t.Error(err)
	}
}

// awaitAll has goroutines wait for an operation each, with these contexts, and returns when all
// have parked, one after the other.
func awaitAll(t *testing.T, f *fake, ctxs ...context.Context) (ops []*op, got []chan error) {
	for i, ctx := range ctxs {
		o, err := &op{}, make(chan error, 1)
		ops, got = append(ops, o), append(got, err)
		go func() { err <- f.await(ctx, o) }()
		require.Eventually(t, func() bool {
			n := 0
			f.locked(func() {
				for w := f.parked.head; w != nil; w = w.next {
					n++
				}
				if f.sleeper != nil {
					n++
				}
			})
			return n == i+1
		}, testlevel.Patience(10*time.Second), 10*time.Microsecond)
	}
	return ops, got
}

// An operation that nobody else can name, and which ends in the first polls, is not marked. One
// that ends later is, though its waiter began in the same way.
func TestAwaitOwn(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		if cfg.SpinLimit < 0 {
			cfg.SpinLimit = 0
		}
		f, o := newFake(t, cfg), &op{}
		wait := func() (unmarked bool) {
			f.locked(func() {
				var err error
				unmarked, err = f.AwaitOwn(bg, &o.Event, o)
				require.NoError(t, err)
				require.Nil(t, f.own)
			})
			return unmarked
		}
		f.quietly(o)
		require.True(t, wait())
		require.True(t, o.Pending(0))
		go func() {
			for !f.asleep() {
				time.Sleep(10 * time.Microsecond)
			}
			f.arrive(o)
		}()
		require.False(t, wait())
		require.True(t, o.Has(0))
	})
}

// Who waits with nothing to come sleeps: after a while nothing polls any more.
func TestIdleSleeps(t *testing.T) {
	for _, manual := range []bool{false, true} {
		f := newFake(t, Config{Manual: manual})
		ops, got := awaitAll(t, f, bg, bg)
		require.Eventually(t, f.asleep, testlevel.Patience(10*time.Second), time.Millisecond)
		var before, after uint64
		f.locked(func() { before = f.sleeps })
		for range 50 {
			time.Sleep(time.Millisecond)
			require.True(t, f.asleep())
		}
		f.locked(func() { after = f.sleeps })
		require.LessOrEqual(t, after, before+1)
		for i, o := range ops {
			f.arrive(o)
			require.NoError(t, <-got[i])
		}
	}
}

// Three wait. The operation of the one that polls ends just when the context of the next in line
// does: the third must get the role from one or the other.
func TestRoleIsHandedOver(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		f := newFake(t, cfg)
		for i := range roundsOr(300) {
			ctx, cancel := context.WithCancel(bg)
			ops, got := awaitAll(t, f, bg, ctx, bg)
			if i%2 == 0 {
				go cancel()
			}
			f.arrive(ops[0])
			require.NoError(t, <-got[0])
			cancel()
			require.Equal(t, context.Canceled, <-got[1])
			f.arrive(ops[2])
			require.NoError(t, <-got[2])
		}
	})
}

// One poll ends the operations of the poller and of the next in line. That one was to have the role
// and does not need it any more: it has to pass it on.
func TestRoleIsPassedOn(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		f := newFake(t, cfg)
		for range roundsOr(200) {
			ops, got := awaitAll(t, f, bg, bg, bg)
			f.locked(func() {
				f.arrive(ops[0])
				f.arrive(ops[1])
			})
			require.NoError(t, <-got[0])
			require.NoError(t, <-got[1])
			f.arrive(ops[2])
			require.NoError(t, <-got[2])
		}
	})
}

// The end of a context ends a wait wherever it sleeps.
func TestContextEndsSleep(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		f := newFake(t, cfg)
		ctx, cancel := context.WithCancel(bg)
		_, got := awaitAll(t, f, ctx, ctx)
		cancel()
		for _, err := range got {
			require.Equal(t, context.Canceled, <-err)
		}
	})
}

// While something waits for room in the transport, which need not report that there is some, nobody
// sleeps for long.
func TestSleepIsShortWhereSomethingWasRefused(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		var o op
		f := newFake(t, cfg, func(f *fake) {
			f.refused = true
			f.onWait = func() { f.quietly(&o) }
		})
		require.NoError(t, f.await(bg, &o))
	})
}

// Who sleeps already when something is refused does not sleep for long either.
func TestRetryWakesWhoSleeps(t *testing.T) {
	modes(t, func(t *testing.T, cfg Config) {
		var o op
		f := newFake(t, cfg)
		woken := make(chan error, 1)
		go func() { woken <- f.await(bg, &o) }()
		require.Eventually(t, f.asleep, testlevel.Patience(10*time.Second), time.Millisecond)
		f.quietly(&o)
		f.locked(func() {
			f.refused = true
			f.Retry()
		})
		require.NoError(t, <-woken)
	})
}

// A transport that cannot be armed, or waited for, is reported by whoever sleeps in it.
func TestFailedTransport(t *testing.T) {
	failure := errors.New("no more events")
	for name, fails := range map[string]func(f *fake){
		"arm":  func(f *fake) { f.armErr = failure },
		"wait": func(f *fake) { f.waitErr = failure },
	} {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, cfg Config) {
				var o op
				f := newFake(t, cfg, fails, func(f *fake) { f.victim = &o })
				require.NoError(t, f.await(bg, &o))
				f.locked(func() {
					require.Equal(t, failure, f.failure)
					require.Zero(t, f.waking)
				})
			})
		})
	}
}

// The progress goroutine looks closer in the end, whoever is in the engine whenever it looks.
func TestRestEnds(t *testing.T) {
	f := newFake(t, Config{Manual: true}) // no progress goroutine but this one
	f.polling.Store(true)
	f.Lock.Lock()
	rested := make(chan struct{})
	go func() {
		timer := time.NewTimer(tick)
		defer timer.Stop()
		f.rest(timer)
		f.Unlock()
		close(rested)
	}()
	require.Eventually(t, func() bool { return f.wanted.Load() == 1 }, testlevel.Patience(10*time.Second), time.Millisecond)
	f.Unlock()
	<-rested
	f.polling.Store(false)
}
