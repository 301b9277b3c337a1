//go:build invariants

package mem

import (
	"strings"
	"testing"

	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
)

func TestCheckRegions(t *testing.T) {
	tab, buf := NewTable(), make([]byte, 8)
	register := func() { _, _ = tab.Register(buf, 0, nil) }
	m, err := tab.Register(buf, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	invarianttest.Violates(t, "region", func() { tab.inv.registered(m) })
	if err := m.Dereg(); err != nil {
		t.Fatal(err)
	}
	tab.own[tab.tail].next -= 1 << IndexBits // the key of before
	tab.head, tab.nfree = tab.tail, rest+1
	invarianttest.Violates(t, "region", register)

	tab = NewTable()
	register()
	tab.live--
	if text := invarianttest.Violates(t, "region", register); !strings.Contains(text, "are counted") {
		t.Error(text)
	}

	s, err := NewTable().Share(buf, -1)
	if err != nil {
		t.Fatal(err)
	}
	s.t.shared = nil
	invarianttest.Violates(t, "region", func() { _ = s.Close() })
}
