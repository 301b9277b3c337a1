package ibverbs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
)

const readable = verbs.AccessRemoteRead

// TestShare: within shared memory a region needs no call, and no allocation.
func TestShare(t *testing.T) {
	r := newRig(t)
	buf := make([]byte, 1000)
	mem := buf[100:900]
	var s interface{ Close() error }
	require.Equal(t, 1, r.calls(func() {
		var err error
		s, err = r.d.Share(mem, -1)
		require.NoError(t, err)
	}))
	var keys [2]uint32
	for i, part := range [][]byte{mem, mem[:1], mem[799:], mem[3:50]} {
		var mr verbs.MR
		register := func() {
			var err error
			mr, err = r.pd.RegMR(part, []verbs.AccessFlags{readable, verbs.AccessLocalWrite}[i%2])
			require.NoError(t, err)
		}
		require.Zero(t, r.calls(func() {
			register()
			if i == 0 {
				keys = [2]uint32{mr.LKey(), mr.RKey()}
			}
			require.NotZero(t, mr.LKey())
			require.Equal(t, keys, [2]uint32{mr.LKey(), mr.RKey()})
			require.EqualValues(t, start(part), mr.Addr())
			require.Equal(t, len(part), mr.Len())
			require.ErrorIs(t, s.Close(), syscall.EBUSY, "a region lies in it")
			require.NoError(t, mr.Dereg())
			require.Zero(t, mr.LKey()+mr.RKey())
			require.ErrorIs(t, mr.Dereg(), syscall.EINVAL)
			require.Zero(t, testing.AllocsPerRun(10, func() {
				register()
				require.NoError(t, mr.Dereg())
			}))
		}))
	}
	for _, other := range []struct {
		buf    []byte
		access verbs.AccessFlags
	}{{buf[99:101], readable}, {buf[899:901], readable}, {buf[:100], readable}, {buf[900:], readable}, {buf, readable},
		{mem, verbs.AccessLocalWrite | verbs.AccessRemoteWrite}} {
		require.Equal(t, 2, r.calls(func() {
			mr, err := r.pd.RegMR(other.buf, other.access)
			require.NoError(t, err)
			require.NotEqual(t, keys[0], mr.LKey())
			require.NoError(t, mr.Dereg())
		}))
	}
	require.Equal(t, 1, r.calls(func() { require.NoError(t, s.Close()) }))
	require.ErrorIs(t, s.Close(), syscall.EINVAL)
	require.Equal(t, 2, r.calls(func() {
		mr, err := r.pd.RegMR(mem, readable)
		require.NoError(t, err)
		require.NoError(t, mr.Dereg())
	}))
}

// TestShareFaults: memory is shared once, and domains come and go meanwhile.
func TestShareFaults(t *testing.T) {
	r := newRig(t)
	buf := make([]byte, 1000)
	s, err := r.d.Share(buf[100:900], -1)
	require.NoError(t, err)
	for _, b := range [][]byte{buf, buf[:101], buf[899:], buf[300:301]} {
		_, err := r.d.Share(b, -1)
		require.ErrorIs(t, err, syscall.EEXIST)
	}
	_, err = r.d.Share(nil, -1)
	require.ErrorIs(t, err, syscall.EINVAL)
	beside, err := r.d.Share(buf[900:], -1)
	require.NoError(t, err)
	require.NoError(t, beside.Close())

	later, err := r.d.AllocPD()
	require.NoError(t, err)
	require.Equal(t, 2, r.calls(func() {
		mr, err := later.RegMR(buf[200:300], readable)
		require.NoError(t, err)
		require.NoError(t, mr.Dereg())
	}), "a domain that is younger has it not")
	both, err := r.d.Share(buf[:100], -1)
	require.NoError(t, err)
	require.NoError(t, later.Dealloc(), "shared memory keeps no domain")
	require.NoError(t, both.Close())

	two, err := r.d.AllocPD()
	require.NoError(t, err)
	objects := r.d.objects
	r.fails("reg_mr", syscall.ENOMEM)
	_, err = r.d.Share(make([]byte, 1<<20), -1)
	isFault(t, err, "reg_mr", syscall.ENOMEM, "1048576 bytes", "ulimit -l")
	r.fails("", 0)
	require.Equal(t, objects, r.d.objects)
	require.Len(t, r.d.shares, 1)
	require.NoError(t, two.Dealloc())
	require.NoError(t, s.Close())
	r.close()
	_, err = r.d.Share(buf, -1)
	require.ErrorIs(t, err, syscall.EBADF)
}
