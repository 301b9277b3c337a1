// Package bootstrap tells a process which rank of which job it is, and lets the ranks exchange
// small values (addresses, keys) before they can send each other messages.
//
// Concurrency: every method of a Bootstrap may be called from any goroutine. Fence is collective:
// all ranks call it the same number of times; calls of one rank's goroutines are carried out one
// after the other. The package holds no global state, and a Bootstrap leaves no goroutine or
// descriptor behind after Close.
//
// Detect looks for a launcher in the order of a table (see Launchers) and joins its job:
//
//   - "env": RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as set by `tagmatch run`, torchrun, a
//     Kubernetes manifest or a shell script. Rank 0 serves a rendezvous at MASTER_ADDR:MASTER_PORT,
//     the others dial it.
//   - "singleton": none of these is set; a job of one rank. Where the environment shows that
//     mpiexec, mpirun or srun started this process with others, Detect fails instead, as their
//     protocols are not implemented yet: N jobs of one rank that all succeed would hide the
//     mistake. Options.Launcher or TAGMATCH_LAUNCHER "singleton" insists.
//
// The model is that of PMI: Put is local, Fence is a barrier that also hands every rank what all
// ranks have put since the last one, and Get then answers from memory.
//
// # Job secret
//
// All ranks share a secret of 32 bytes, from which p2p authenticates its connections. It comes from
// Options.Secret, TAGMATCH_SECRET (64 hexadecimal digits; set by `tagmatch run`) or the file named
// by TAGMATCH_SECRET_FILE. The rendezvous then lets in only those who prove that they know it, in
// both directions, and authenticates each frame; the secret itself never crosses the network. Where
// none is given, rank 0 makes one and hands it to whoever completes the roll of ranks; the
// rendezvous then listens on loopback only, unless TAGMATCH_LISTEN says otherwise.
// TAGMATCH_REQUIRE_SECRET=1 refuses to start that way. The rendezvous is not encrypted: values are
// readable by whoever can read the network.
//
// This package carries no compatibility promise yet.
package bootstrap
