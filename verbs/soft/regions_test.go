package soft

import (
	"testing"

	"github.com/tagmatch/tagmatch/verbs"
)

func TestRegionBounds(t *testing.T) {
	tab := newRegionTable(nil)
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
		{key ^ 1<<20, base, 1, 0, false},
		{0, base, 1, 0, false},
		{top32, base, 1, 0, false},
	} {
		if got := regionAllows(tab.slots, c.key, c.addr, c.n, c.need); got != c.ok {
			t.Errorf("regionAllows(%#x, base%+d, %d, %d) = %v", c.key, int64(c.addr-base), c.n, c.need, got)
		}
		if b, got := tab.resolve(nil, c.key, c.addr, c.n, c.need); got != c.ok || got && uint64(len(b)) != c.n {
			t.Errorf("resolve(%#x, base%+d, %d, %d) = %v", c.key, int64(c.addr-base), c.n, c.need, got)
		}
	}
	if regionAllows(tab.slots[:0], key, base, 1, 0) {
		t.Error("an empty table has a region")
	}
	tab.remove(key)
	tab.remove(key)
	if regionAllows(tab.slots, key, base, 1, 0) || tab.find(key) != nil {
		t.Error("a withdrawn region is still there")
	}
}

const top32 = ^uint32(0)

// TestRegionKeys: keys are not handed out again soon, the table grows to its limit and no further, and comes back.
func TestRegionKeys(t *testing.T) {
	tab := newRegionTable(nil)
	buf := make([]byte, 8)
	seen := make(map[uint32]bool)
	take := func() uint32 {
		key, err := tab.add(buf, 0)
		if err != nil || seen[key] {
			t.Fatalf("key %#x, seen %v, error %v", key, seen[key], err)
		}
		seen[key] = true
		return key
	}
	for range 5000 {
		tab.remove(take())
	}
	if len(tab.own) != regionStart {
		t.Errorf("%d slots for one region at a time", len(tab.own))
	}
	var keys []uint32
	for range maxRegions {
		keys = append(keys, take())
	}
	if _, err := tab.add(buf, 0); err == nil {
		t.Error("more than maxRegions")
	}
	for _, k := range keys {
		tab.remove(k)
	}
	take()
}

// TestRegionKeyWrap: after the last generation of slot 0 comes generation 1, never 0.
func TestRegionKeyWrap(t *testing.T) {
	tab := newRegionTable(nil)
	buf := make([]byte, 8)
	tab.own[0].next = top32 &^ regionIndexMask
	key, _ := tab.add(buf, 0)
	tab.remove(key)
	if tab.own[0].next != 1<<regionIndexBits {
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
