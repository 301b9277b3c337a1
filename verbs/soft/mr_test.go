package soft

import (
	"errors"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
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
	}); err != nil {
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
