// Package space is the seam between package bootstrap and the launchers that have a key-value space
// of their own (PMI, PMIx, torchrun's store, a shared directory). The rendezvous needs very little
// of such a space: who this process is, and one value that gets from rank 0 to all ranks, namely
// where rank 0 serves the rendezvous and the secret of the job. All else, from Fence to the
// detection of losses, is the rendezvous' own and the same under every launcher.
package space

import "context"

// EnvPMIxLibrary names the library that package bootstrap/pmix loads, in place of libpmix.so.2. It
// is known here, as programs without that client must not take it for a misspelled variable.
const EnvPMIxLibrary = "TAGMATCH_LIBPMIX"

// MaxValue is the most bytes that a Broadcast must carry.
const MaxValue = 4 << 10

// Identity is which process of which job this is.
type Identity struct {
	Rank, Size int
	// LocalRank is the rank's number among the LocalSize ranks of this host; -1 where the launcher
	// does not tell.
	LocalRank, LocalSize int
	JobID                string // equal on all ranks and different for each run; empty: not known
}

// Space is an open key-value space. Its methods may be called from any goroutine; calls that
// talk to the launcher are carried out one after the other.
type Space interface {
	Identity() Identity

	// Broadcast hands rank 0's value, of 1 to MaxValue arbitrary bytes, to all ranks: rank 0
	// returns value itself, and the others, whose value is ignored, what rank 0 gave. Every rank
	// calls it once. It ends with ctx, after which only Abort and Close may be called.
	Broadcast(ctx context.Context, value []byte) ([]byte, error)

	// Joined says, at rank 0, that all ranks have what it has broadcast: it may be forgotten.
	Joined()

	// Abort asks the launcher to end the job with exit code code, and returns when that was sent.
	// Where the launcher has no such request it does nothing. Reason is one line of any text.
	Abort(code int, reason string)

	// Close ends the use of the space, in the way that the launcher wants to be told. The job goes
	// on.
	Close() error
}
