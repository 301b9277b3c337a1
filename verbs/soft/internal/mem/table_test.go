package mem

import (
	"testing"

	"github.com/tagmatch/tagmatch/internal/testlevel"
	"github.com/tagmatch/tagmatch/verbs"
)

func TestRegionBounds(t *testing.T) {
	tab := NewTable()
	buf := make([]byte, 100)
	key, err := tab.add(buf, verbs.AccessRemoteRead)
	if err != nil || key == 0 {
		t.Fatal(key, err)
	}
	base := AddrOf(buf)
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
		{key ^ 1<<IndexBits, base, 1, 0, false},
		{key + 3*PieceSlots, base, 1, 0, false},
		{0, base, 1, 0, false},
		{top32, base, 1, 0, false},
	} {
		if got := Allows(tab.dir.At(c.key), c.key, c.addr, c.n, c.need); got != c.ok {
			t.Errorf("regionAllows(%#x, base%+d, %d, %d) = %v", c.key, int64(c.addr-base), c.n, c.need, got)
		}
		if b, got := tab.Resolve(nil, c.key, c.addr, c.n, c.need); got != c.ok || got && uint64(len(b)) != c.n {
			t.Errorf("resolve(%#x, base%+d, %d, %d) = %v", c.key, int64(c.addr-base), c.n, c.need, got)
		}
	}
	if Allows(nil, key, base, 1, 0) {
		t.Error("a slot that is not there has a region")
	}
	tab.Remove(key)
	tab.Remove(key)
	if Allows(tab.dir.At(key), key, base, 1, 0) || tab.Find(key) != nil {
		t.Error("a deregistered region is still there")
	}
}

const top32 = ^uint32(0)

// TestRegionKeys: a slot rests while rest others are used, whatever is live meanwhile, and
// its next key is a new one.
func TestRegionKeys(t *testing.T) {
	tab, buf := NewTable(), make([]byte, 8)
	var held []uint32
	for _, live := range []int{0, 1000, 3 * rest} {
		for len(held) < live {
			held = append(held, newRegion(t, tab, buf))
		}
		last := map[uint32]int{} // by index: the registration that had it
		keys := map[uint32]bool{}
		for n := range 3 * rest {
			key := newRegion(t, tab, buf)
			if keys[key] {
				t.Fatalf("%d live: key %#x has come back", live, key)
			}
			if at, ok := last[key&IndexMask]; ok && n-at < rest {
				t.Fatalf("%d live: slot %d is used again after %d registrations", live, key&IndexMask, n-at)
			}
			last[key&IndexMask], keys[key] = n, true
			tab.Remove(key)
		}
		if len(tab.own) > live+rest+1 {
			t.Errorf("%d slots for %d regions", len(tab.own), live+1)
		}
	}
}

// TestRegionLimit: the table grows to its limit and no further, and comes back.
func TestRegionLimit(t *testing.T) {
	testlevel.SkipIfQuick(t)
	tab, buf := NewTable(), make([]byte, 8)
	keys := make([]uint32, MaxRegions)
	for i := range keys {
		keys[i] = newRegion(t, tab, buf)
	}
	for range 2 * rest { // from the middle on there are no fresh slots
		if _, err := tab.add(buf, 0); err != errFull {
			t.Fatal("more than maxRegions:", err)
		}
		tab.Remove(keys[0])
		keys[0] = newRegion(t, tab, buf)
	}
	for _, k := range keys {
		if !Allows(tab.dir.At(k), k, AddrOf(buf), 8, 0) {
			t.Fatalf("region %#x is not there", k)
		}
		tab.Remove(k)
	}
	newRegion(t, tab, buf)
	if tab.nspare > maxSpare {
		t.Errorf("%d free objects are kept", tab.nspare)
	}
}

func newRegion(t *testing.T, tab *Table, buf []byte) uint32 {
	t.Helper()
	key, err := tab.add(buf, verbs.AccessRemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestLocalRegion: peers do not see a region that they have no rights to.
func TestLocalRegion(t *testing.T) {
	tab, pd := NewTable(), new(Domain)
	pd.Enter = func(string) func() { return func() {} }
	buf := make([]byte, 8)
	for range 2 * rest { // all slots, which others have had before
		r, err := tab.Register(buf, verbs.AccessLocalWrite, pd)
		if err != nil {
			t.Fatal(err)
		}
		if !tab.Local(pd, r.key, buf, verbs.AccessLocalWrite) || Allows(tab.dir.At(r.key), r.key, r.addr, 8, 0) {
			t.Fatal("a region for its owner")
		}
		_ = r.Dereg()
		if r, err = tab.Register(buf, verbs.AccessLocalWrite|verbs.AccessRemoteRead, pd); err != nil {
			t.Fatal(err)
		}
		if !Allows(tab.dir.At(r.key), r.key, r.addr, 8, verbs.AccessRemoteRead) || !tab.Local(pd, r.key, buf, verbs.AccessLocalWrite) {
			t.Fatal("a region for all")
		}
		_ = r.Dereg()
	}
}

// TestRegionKeyWrap: after the last generation of slot 0 comes generation 1, never 0.
func TestRegionKeyWrap(t *testing.T) {
	tab := NewTable()
	buf := make([]byte, 8)
	tab.Remove(newRegion(t, tab, buf))
	tab.own[0].next = top32 &^ IndexMask
	tab.nfree = rest + 1
	key := newRegion(t, tab, buf)
	if key != top32&^IndexMask {
		t.Fatalf("key %#x", key)
	}
	tab.Remove(key)
	if tab.own[0].next != 1<<IndexBits || tab.own[0].r != nil {
		t.Errorf("next key %#x", tab.own[0].next)
	}
}

// add registers buf outside of any protection domain and returns its key.
func (t *Table) add(buf []byte, access verbs.AccessFlags) (uint32, error) {
	r, err := t.Register(buf, access, nil)
	if err != nil {
		return 0, err
	}
	return r.key, nil
}
