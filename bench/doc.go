// Bench measures tagmatch, and compares it with UCX, Open MPI, MPICH and gloo.
//
//	go run ./bench lat      half round trip by message size
//	go run ./bench bw       bandwidth of windows, and what it costs in processor time
//	go run ./bench rate     messages a second
//	go run ./bench threads  half round trip of pairs of goroutines; rate -goroutines: messages
//	go run ./bench depth    half round trip behind queued entries that do not match
//	go run ./bench idle     processor time of a rank that waits, and how long a wake-up takes
//	go run ./bench echo     net/http in a process that has a goroutine in Recv
//	go run ./bench alltoall exchanges among more ranks than processors, over those of two ranks
//	go run ./bench coll     collective operations, and each algorithm beside the automatic choice
//	go run ./bench overlap  how much of a transfer a computing receiver gets for nothing
//	go run ./bench flood    memory of a rank that does not receive what three others send
//	go run ./bench soak     random messages by every kind of call, all compared
//	go run ./bench limits   what the machine can do at best: a line, copies, sockets
//	go run ./bench compare  ratios to four peers, ours and theirs by turns, with their marks
//
// Each takes flags, which -h lists; with -json it prints an object a line.
//
// lat, bw and rate launch themselves as two ranks on this host, or use a launcher's first two
// ranks, while others are in Recv; lat -n 64 starts such others, and compares. lat -onecore has
// both ranks, which it starts itself, on one processor. overlap starts ranks once for each line of
// its table, and under a launcher measures what the flags say.
// bw and rate end each window by WaitAll and an answer; with -sliding one window slides instead.
// compare starts all programs itself and needs Debian's packages of its peers, or -peers. Its -h
// has what it does against noise, and the settings of ours. It is made of bench/internal: judge,
// peers, hop.
//
// flood launches itself as four ranks for each line of its table: the peak memory of a process is
// measured once. Senders keep all their requests, so ten million messages (-iters) take some
// gigabytes. The first peak beyond the bound, which is TAGMATCH_UNEXPECTED_LIMIT and 64 MiB, ends
// it with exit code 1. It needs Linux, and so does limits.
//
// soak launches itself as -n ranks and takes -for as long: raw calls and those of Comms, receives
// from any source and with any tag, probes, Queues, persistent and synchronous sends, receives and
// sends that are ended, in half of the rounds beside a rank that pauses. Its exit code is 1 where a
// message is lost, overtaken, damaged or there twice; after five minutes without the end of a round
// the ranks that still wait say where they stand. -sizes is the largest message, and -iters how
// many each rank sends to each other in each part of a round, at most. It is bench/internal/soak.
//
//	go run ./bench soak -fault 10s -seed 1 -for 30m
//
// has a rank die so often, and starts the job again: it is killed, exits or panics, and before that
// some rank is stopped for a while, all by the seed. Each operation with the dead rank must end and
// name it, a stopped one must not be lost, and the survivors go on among each other. A line of each
// job has the times and what the survivors and this process take; nothing may be left of a job, nor
// grow from job to job. Else the exit code is 1. It needs Linux, and is bench/internal/faults.
//
// Concurrency: each rank has as many goroutines that send and receive as -goroutines says, by
// default one; compare runs one measurement at a time.
package main
