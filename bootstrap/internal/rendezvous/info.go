package rendezvous

import "net/netip"

// Info is further constant facts about the job.
type Info struct {
	// LocalRank is this rank's number among the LocalSize ranks of this host. Where the launcher
	// does not tell, LocalRank is -1, or both are 0.
	LocalRank, LocalSize int
	// LocalIP is the address at which the other ranks reach this host: the local end of the
	// connection to rank 0, or loopback when all ranks are on one host. The zero Addr stands for
	// loopback.
	LocalIP      netip.Addr
	Launcher     string // one of Launchers
	JobID        string // equal on all ranks, unique for each run of a job; empty: not known
	Secret       []byte // of the job: SecretSize bytes that the caller must not change, or nil
	SecretOrigin string // where Secret comes from, for people
	// SecretExposed: others than the ranks may have read Secret, as it went over the network or a
	// store in plain. TLS is refused with it.
	SecretExposed bool
}

// Loss reports that a rank left the job or, with GivenUp, that it gave up this rank.
type Loss struct {
	Rank    int
	Reason  string
	GivenUp bool
}

// AbortInfo describes an Abort. Rank is -1 for one by the launcher.
type AbortInfo struct {
	Rank   int
	Code   int
	Reason string
}

// Limits of a job, and of Put and Fence.
const (
	MaxSize  = 1 << 20 // ranks
	MaxEpoch = 128     // bytes of Job.Epoch
	MaxKey   = 1 << 10 // bytes of a key
	MaxValue = 1 << 20 // bytes of a value
	MaxFence = 8 << 20 // bytes that one rank may put between two fences, keys included
)

// SecretSize is the length of a job secret in bytes.
const SecretSize = 32
