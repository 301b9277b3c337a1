//go:build linux

package soft_test

import (
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft"
	"github.com/tagmatch/tagmatch/verbs/soft/softtest"
	"github.com/tagmatch/tagmatch/verbs/verbstest"
)

// asyncDevice is a device in asynchronous mode that a test owns, except that its goroutine makes a
// pass before each poll.
type asyncDevice struct {
	*soft.Device
	owner sync.Mutex
}

func (d *asyncDevice) LetGo(f func()) {
	d.owner.Unlock()
	defer d.owner.Lock()
	soft.AsyncPass(d.Device)
	f()
}

func (d *asyncDevice) Close() error {
	d.owner.Unlock()
	defer d.owner.Lock()
	return d.Device.Close()
}

// asyncOpener opens the devices of another opener in asynchronous mode.
func asyncOpener(open verbstest.Opener) verbstest.Opener {
	return func(t *testing.T, n int) []verbs.Device {
		devs := open(t, n)
		for i := range devs {
			d := &asyncDevice{Device: devs[i].(*soft.Device)}
			if err := d.Async(&d.owner); err != nil {
				t.Fatal(err)
			}
			d.owner.Lock()
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			devs[i] = d
		}
		return devs
	}
}

// TestAsyncSuite runs the device suite with nearly everything done by the devices' goroutines.
func TestAsyncSuite(t *testing.T) {
	defer goleak.VerifyNone(t)
	for name, open := range map[string]verbstest.Opener{
		"shm":         shmOpener(soft.Config{}),
		"shm/packets": shmOpener(softtest.WithoutDirect(soft.Config{RingBytes: 8192})),
		"tcp":         tcpOpener,
		"tls":         tlsOpener(),
		"loop":        tagOpener(softtest.FabricOptions{}, softtest.TM{InitialCount: soonWraps}),
	} {
		if testlevel.Quick() && name != "loop" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			verbstest.Run(t, asyncOpener(open), wireOptions(strings.HasPrefix(name, "shm") && name != "shm/packets"))
		})
	}
}
