// Package peers runs the programs that tagmatch is compared with: ucx_perftest, and a small program
// of ours (src/peer.c) compiled for Open MPI and for MPICH. Of gloo it is src/gloo.py.
//
// Concurrency: a Peer measures one job at a time.
package peers
