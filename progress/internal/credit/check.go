//go:build invariants

package credit

import "github.com/tagmatch/tagmatch/internal/invariant"

// Check checks the account of a rank, of which messages are kept that have cost so much.
func (a *Account) Check(rank int, kept uint64, lost bool) {
	invariant.Check(a.charged-a.consumed == kept, "credit", "%d bytes of rank %d are charged and %d consumed; %d are kept", a.charged, rank, a.consumed, kept)
	invariant.Check(lost || a.charged <= a.granted || a.excess, "credit", "%d bytes of rank %d are charged, %d granted", a.charged, rank, a.granted)
	invariant.Check(a.window >= a.initial, "credit", "rank %d: window %d, initially %d", rank, a.window, a.initial)
}
