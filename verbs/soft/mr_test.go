package soft

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tagmatch/tagmatch/verbs"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/hook"
	"github.com/tagmatch/tagmatch/verbs/soft/internal/mem"
)

// TestRegionShortage: without memory for more slots no region is made, and with memory again it is.
func TestRegionShortage(t *testing.T) {
	d, err := Open(Config{Fabric: NewFabric()})
	if err != nil {
		t.Fatal(err)
	}
	pd, _ := d.AllocPD()
	scarce := true
	if err := d.regions.Rehome(func(k int) (*mem.Piece, error) {
		if scarce && k > 0 {
			return nil, syscall.ENOSPC
		}
		return new(mem.Piece), nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	var mrs []verbs.MR
	reg := func() error {
		mr, err := pd.RegMR(make([]byte, 8), 0)
		if err == nil {
			mrs = append(mrs, mr)
		}
		return err
	}
	for range mem.PieceSlots {
		if err := reg(); err != nil {
			t.Fatal(err)
		}
	}
	if err := reg(); !errors.Is(err, syscall.ENOMEM) {
		t.Error("without memory:", err)
	}
	scarce = false
	if err := reg(); err != nil {
		t.Error("with memory again:", err)
	}
	for _, mr := range mrs {
		if err := mr.Dereg(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(pd.Dealloc(), d.Close()); err != nil {
		t.Error(err)
	}
}

// TestLimits: a device with lower limits than its own keeps to them, and memory that is
// deregistered can be registered again.
func TestLimits(t *testing.T) {
	d, err := Open(Config{Fabric: NewFabric(), limits: hook.Limits{MaxCQE: 8, RegBytes: 100}})
	require.NoError(t, err)
	require.Equal(t, 8, d.Attr().MaxCQE)
	_, err = d.CreateCQ(verbs.CQInitAttr{CQE: 9})
	require.ErrorIs(t, err, syscall.EINVAL)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	for range 3 {
		mr, err := pd.RegMR(make([]byte, 100), 0)
		require.NoError(t, err)
		_, err = pd.RegMR(make([]byte, 1), 0)
		require.ErrorIs(t, err, syscall.ENOMEM)
		require.NoError(t, mr.Dereg())
	}
	require.NoError(t, errors.Join(pd.Dealloc(), d.Close()))
}
