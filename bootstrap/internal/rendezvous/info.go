package rendezvous

import "net/netip"

// Info is further constant facts about the job: package bootstrap has its fields.
type Info struct {
	LocalRank, LocalSize int
	LocalIP              netip.Addr
	Launcher             string
	JobID                string
	Secret               []byte
	SecretOrigin         string
	SecretExposed        bool
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
