//go:build invariants

package credit

import (
	"testing"

	"github.com/tagmatch/tagmatch/internal/invariant/invarianttest"
)

func TestAccountIsChecked(t *testing.T) {
	const kept = 1000
	for name, spoil := range map[string]func(a *Account){
		"given back too early": func(a *Account) { a.consumed++ },
		"used twice":           func(a *Account) { a.granted = a.charged - 1 },
		"window too small":     func(a *Account) { a.window = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			a := NewPool(1<<20, 1, record, record).Account()
			a.Open()
			a.Charge(kept)
			a.Check(0, kept, false)
			spoil(&a)
			invarianttest.Violates(t, "credit", func() { a.Check(0, kept, false) })
		})
	}
}
