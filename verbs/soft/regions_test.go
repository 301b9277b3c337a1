package soft

import (
	"errors"
	"syscall"
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

func TestRegionBounds(t *testing.T) {
	tab := newRegionTable()
	buf := make([]byte, 100)
	key, err := tab.add(buf, verbs.AccessRemoteRead)
	if err != nil || key == 0 {
		t.Fatal(key, err)
	}
	base := addrOf(buf)
	const top = ^uint64(0)
	for _, c := range []struct {
		key     uint32
		addr, n uint64
		need    verbs.AccessFlags
		ok      bool
	}{
		{key, base, 100, verbs.AccessRemoteRead, true},
		{key, base + 99, 1, verbs.AccessRemoteRead, true},
		{key, base + 100, 1, verbs.AccessRemoteRead, false},
		{key, base, 101, verbs.AccessRemoteRead, false},
		{key, base - 1, 1, verbs.AccessRemoteRead, false},
		{key, base + 1, top, verbs.AccessRemoteRead, false},
		{key, top, 2, verbs.AccessRemoteRead, false},
		{key, base, 1, verbs.AccessRemoteWrite, false},
		{key, base, 1, verbs.AccessRemoteRead | verbs.AccessRemoteWrite, false},
		{key + 1, base, 1, 0, false},
		{key ^ 1<<regionIndexBits, base, 1, 0, false},
		{key + 3*pieceRegions, base, 1, 0, false},
		{0, base, 1, 0, false},
		{top32, base, 1, 0, false},
	} {
		if got := regionAllows(tab.dir.at(c.key), c.key, c.addr, c.n, c.need); got != c.ok {
			t.Errorf("regionAllows(%#x, base%+d, %d, %d) = %v", c.key, int64(c.addr-base), c.n, c.need, got)
		}
		if b, got := tab.resolve(nil, c.key, c.addr, c.n, c.need); got != c.ok || got && uint64(len(b)) != c.n {
			t.Errorf("resolve(%#x, base%+d, %d, %d) = %v", c.key, int64(c.addr-base), c.n, c.need, got)
		}
	}
	if regionAllows(nil, key, base, 1, 0) {
		t.Error("a slot that is not there has a region")
	}
	tab.remove(key)
	tab.remove(key)
	if regionAllows(tab.dir.at(key), key, base, 1, 0) || tab.find(key) != nil {
		t.Error("a withdrawn region is still there")
	}
}

const top32 = ^uint32(0)

// TestRegionKeys: a slot rests while regionRest others are used, whatever is live meanwhile, and
// its next key is a new one.
func TestRegionKeys(t *testing.T) {
	tab, buf := newRegionTable(), make([]byte, 8)
	var held []uint32
	for _, live := range []int{0, 1000, 3 * regionRest} {
		for len(held) < live {
			held = append(held, addRegion(t, tab, buf))
		}
		last := map[uint32]int{} // by index: the registration that had it
		keys := map[uint32]bool{}
		for n := range 3 * regionRest {
			key := addRegion(t, tab, buf)
			if keys[key] {
				t.Fatalf("%d live: key %#x has come back", live, key)
			}
			if at, ok := last[key&regionIndexMask]; ok && n-at < regionRest {
				t.Fatalf("%d live: slot %d is used again after %d registrations", live, key&regionIndexMask, n-at)
			}
			last[key&regionIndexMask], keys[key] = n, true
			tab.remove(key)
		}
		if len(tab.own) > live+regionRest+1 {
			t.Errorf("%d slots for %d regions", len(tab.own), live+1)
		}
	}
}

// TestRegionLimit: the table grows to its limit and no further, and comes back.
func TestRegionLimit(t *testing.T) {
	tab, buf := newRegionTable(), make([]byte, 8)
	keys := make([]uint32, maxRegions)
	for i := range keys {
		keys[i] = addRegion(t, tab, buf)
	}
	for range 2 * regionRest { // from the middle on there are no fresh slots
		if _, err := tab.add(buf, 0); err != errRegionsFull {
			t.Fatal("more than maxRegions:", err)
		}
		tab.remove(keys[0])
		keys[0] = addRegion(t, tab, buf)
	}
	for _, k := range keys {
		if !regionAllows(tab.dir.at(k), k, addrOf(buf), 8, 0) {
			t.Fatalf("region %#x is not there", k)
		}
		tab.remove(k)
	}
	addRegion(t, tab, buf)
	if tab.nspare > maxSpare {
		t.Errorf("%d free objects are kept", tab.nspare)
	}
}

// TestRegionShortage: without memory for more slots no region is made, and with memory again it is.
func TestRegionShortage(t *testing.T) {
	d, err := Open(Config{Fabric: NewFabric(FabricOptions{})})
	if err != nil {
		t.Fatal(err)
	}
	pd, _ := d.AllocPD()
	d.regions.more = func(k int) (*regionPiece, error) {
		if k == 0 {
			return heapPiece(k)
		}
		return nil, syscall.ENOSPC
	}
	var mrs []verbs.MR
	reg := func() error {
		mr, err := pd.RegMR(make([]byte, 8), 0)
		if err == nil {
			mrs = append(mrs, mr)
		}
		return err
	}
	for range pieceRegions {
		if err := reg(); err != nil {
			t.Fatal(err)
		}
	}
	if err := reg(); !errors.Is(err, syscall.ENOMEM) {
		t.Error("without memory:", err)
	}
	d.regions.more = heapPiece
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

func addRegion(t *testing.T, tab *regionTable, buf []byte) uint32 {
	t.Helper()
	key, err := tab.add(buf, 0)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestRegionKeyWrap: after the last generation of slot 0 comes generation 1, never 0.
func TestRegionKeyWrap(t *testing.T) {
	tab := newRegionTable()
	buf := make([]byte, 8)
	tab.remove(addRegion(t, tab, buf))
	tab.own[0].next = top32 &^ regionIndexMask
	tab.nfree = regionRest + 1
	key := addRegion(t, tab, buf)
	if key != top32&^regionIndexMask {
		t.Fatalf("key %#x", key)
	}
	tab.remove(key)
	if tab.own[0].next != 1<<regionIndexBits || tab.own[0].r != nil {
		t.Errorf("next key %#x", tab.own[0].next)
	}
}

// add registers buf outside of any protection domain and returns its key.
func (t *regionTable) add(buf []byte, access verbs.AccessFlags) (uint32, error) {
	r, err := t.register(buf, access, nil)
	if err != nil {
		return 0, err
	}
	return r.rkey, nil
}
