package ibverbs

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/ibverbs/internal/ccall"
	"github.com/tagmatch/tagmatch/verbs/soft"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(built) // "" is nothing
		os.Exit(code)
	}))
}

// compiled is testdata/provider.c as a library, once it was needed.
var (
	compiled string
	compile  = sync.OnceValues(func() ([]byte, error) {
		dir, err := BuildDir()
		if err != nil {
			return nil, err
		}
		compiled = filepath.Join(dir, "libprovider.so")
		return compileLibrary(compiled, "provider.c")
	})
)

// provider is the library of testdata/provider.c, which all that is opened during a test uses.
type provider struct {
	t testing.TB
	*ccall.Library
}

func newProvider(t testing.TB) *provider {
	NeedHeader(t)
	out, err := compile()
	require.NoError(t, err, "%s", out)
	lib, err := load(compiled)
	require.NoError(t, err)
	file, err := ccall.Load(compiled)
	require.NoError(t, err)
	old := theLibrary
	theLibrary = func() (*library, error) { return lib, nil }
	t.Cleanup(func() { theLibrary = old })
	return &provider{t, file}
}

// variable is a variable of a provider.
func variable[T any](p *provider, name string) *T {
	a, err := p.Symbol(name)
	require.NoError(p.t, err)
	return at[T](a)
}

// set sets a variable until the end of the test.
func set[T any](p *provider, name string, v T) {
	at := variable[T](p, name)
	old := *at
	*at = v
	p.t.Cleanup(func() { *at = old })
}

// fails has a verb fail from now on; "": none does.
func (p *provider) fails(verb string, errno syscall.Errno) {
	var name [32]byte
	copy(name[:], verb)
	set(p, "failing", name)
	set(p, "failing_errno", int32(errno))
}

// calls is how many posts, polls and registrations f makes.
func (p *provider) calls(f func()) int {
	n := variable[int32](p, "calls")
	before := *n
	f()
	return int(*n - before)
}

// device opens the device of the provider.
func (p *provider) device() *device {
	d, err := open("", verbs.DriverConfig{Lines: linesOfTest})
	require.NoError(p.t, err)
	return d.(*device)
}

func linesOfTest(carried []byte) (verbs.LineDevice, error) {
	return soft.Open(soft.Config{Wires: []string{soft.WireTCP}, Secret: []byte("secret"), Carried: carried})
}

// rig is a device with an object of each kind.
type rig struct {
	*provider
	d   *device
	ch  *channel
	cq  *compQueue
	pd  *domain
	srq *sharedQueue
	qp  *queuePair
}

func newRig(t testing.TB) *rig {
	r := &rig{provider: newProvider(t)}
	r.d = r.device()
	ch, err := r.d.CreateCompChannel()
	require.NoError(t, err)
	cq, err := r.d.CreateCQ(verbs.CQInitAttr{CQE: 256, Channel: ch})
	require.NoError(t, err)
	pd, err := r.d.AllocPD()
	require.NoError(t, err)
	srq, err := pd.CreateSRQ(&verbs.SRQInitAttr{SRQAttr: verbs.SRQAttr{MaxWR: 256, MaxSGE: 1}})
	require.NoError(t, err)
	r.ch, r.cq, r.pd, r.srq = ch.(*channel), cq.(*compQueue), pd.(*domain), srq.(*sharedQueue)
	r.qp = r.newQP()
	t.Cleanup(r.close)
	return r
}

func (r *rig) newQP() *queuePair {
	qp, err := r.pd.CreateQP(&verbs.QPInitAttr{SendCQ: r.cq, RecvCQ: r.cq, SRQ: r.srq, Type: verbs.QPTRC,
		Cap: verbs.QPCap{MaxSendWR: 256, MaxSendSGE: 1, MaxInlineData: 64}})
	require.NoError(r.t, err)
	return qp.(*queuePair)
}

// connect brings a queue pair to RTS.
func (r *rig) connect(qp *queuePair, to []byte) {
	require.NoError(r.t, qp.Modify(&verbs.QPAttr{State: verbs.QPSInit, Port: 1}, verbs.QPMaskInit))
	require.NoError(r.t, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTR, AV: verbs.AddressVector{Address: to}, PathMTU: verbs.MTU1024,
		DestQPN: 1, MaxDestRdAtomic: 1}, verbs.QPMaskRTR))
	require.NoError(r.t, qp.Modify(&verbs.QPAttr{State: verbs.QPSRTS, MaxRdAtomic: 1, RetryCnt: 6, RNRRetry: 7}, verbs.QPMaskRTS))
}

// close destroys what the test has not destroyed.
func (r *rig) close() {
	if r.d.closed {
		return
	}
	for qp := range r.d.qps {
		require.NoError(r.t, qp.Destroy())
	}
	for _, destroy := range []func() error{r.srq.Destroy, r.pd.Dealloc, r.cq.Destroy, r.ch.Close, r.d.Close} {
		require.NoError(r.t, destroy())
	}
}

// descriptors are those of this process.
func descriptors(t testing.TB) (open []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
			open = append(open, fmt.Sprint(e.Name(), " ", to))
		}
	}
	return open
}
