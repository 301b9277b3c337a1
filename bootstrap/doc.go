// Package bootstrap tells a process which rank of which job it is, and lets the ranks exchange
// small values (addresses, keys) before they can send each other messages.
//
// Concurrency: every method of a Bootstrap may be called from any goroutine. Fence is collective:
// all ranks call it the same number of times; calls of one rank's goroutines are carried out one
// after the other. The package holds no global state but the list of imported clients, and the
// secret that Detect has taken out of the environment. A Bootstrap leaves no descriptor behind
// after Close, and no goroutine but one whose notice on the standard error output nobody takes.
//
// Detect looks for a launcher in the order of a table (see Launchers; docs/launching.md has the
// facts) and joins its job:
//
//   - "pmi", "pmix", "file", "torchrun": the launcher, or a directory, has a key-value space that
//     all ranks reach. Rank 0 publishes there where it serves the rendezvous, and a job secret.
//     "pmix" needs package bootstrap/pmix, which programs import by name.
//   - "env", "kubernetes": RANK and WORLD_SIZE, or what stands for them, with MASTER_ADDR and
//     MASTER_PORT, as set by `tagmatch run`, torchrun, a manifest or a script. Rank 0 serves the
//     rendezvous there.
//   - "openmpi", "slurm": mpirun and srun by their own variables. On one host the ranks meet by a
//     file of this user; on several by MASTER_ADDR, and under srun by the first node of the step.
//   - "singleton": none of these; a job of one rank. Where the environment shows a launcher that
//     this process cannot speak to, Detect fails instead: N jobs of one rank that all succeed
//     would hide the mistake. Options.Launcher or TAGMATCH_BOOTSTRAP "singleton" insists.
//
// All dial rank 0, and all that follows goes over these connections, but what all ranks have put:
// it comes down a tree of the ranks.
//
// The model is that of PMI: Put is local, Fence is a barrier that also hands every rank what all
// ranks have put since the last one, and Get then answers from memory.
//
// # Job secret
//
// All ranks share a secret of 32 bytes, from which p2p authenticates its connections. It comes from
// Options.Secret, TAGMATCH_SECRET (64 hexadecimal digits; set by `tagmatch run`) or the file named
// by TAGMATCH_SECRET_FILE; else rank 0 makes one and publishes it in the launcher's key-value
// space, where there is one. Detect takes it out of the environment, so that programs which this
// process starts do not get it. The rendezvous lets in only those who prove that they know it, in
// both directions, rank 0 last, and authenticates each frame; the secret itself never crosses its
// connections. Connections that prove nothing are few at once and do not hold up ranks, see
// internal/door; without a secret ranks and strangers are told apart only when they have joined.
// Where there is neither a secret nor such a space, rank 0 hands one to whoever completes the roll
// of ranks; the rendezvous then listens on loopback only, unless TAGMATCH_LISTEN says otherwise.
// TAGMATCH_REQUIRE_SECRET=1 refuses to start that way.
//
// With Options.TLS (TAGMATCH_TLS) all that follows the proofs goes over TLS 1.3, whose session both
// ends bind to the secret; what was put is then hidden from who reads the network. HELLO tells
// whether a rank has it, and the proofs cover that. It needs a secret that was not handed out in
// plain, and so TLS meets strangers only where they stand between the ends. Without it values are
// readable by whoever can read the network.
//
// This package carries no compatibility promise yet.
package bootstrap
