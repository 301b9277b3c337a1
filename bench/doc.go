// Bench measures tagmatch, and compares it with UCX.
//
//	go run ./bench lat      half round trip by message size
//	go run ./bench bw       bandwidth of a stream, and what it costs in processor time
//	go run ./bench rate     messages a second
//	go run ./bench star     loops in which all ranks send to rank 0, which answers each
//	go run ./bench overlap  how much of a transfer a computing receiver gets for nothing
//	go run ./bench flood    memory of a rank that does not receive what three others send
//	go run ./bench compare  ratios to ucx_perftest, ours and theirs by turns
//
// Each takes flags, which -h lists; with -json it prints an object a line.
//
// lat, bw and rate launch themselves as two ranks on this host, or use a launcher's first two
// ranks; overlap does so once for each line of its table, and under a launcher measures what the
// flags say. compare starts both programs itself and needs Debian's package ucx-utils; see its -h
// for what it does against noise.
//
// flood launches itself as five ranks for each line of its table: the peak memory of a process is
// measured once. Ten million messages a size (-messages) take some gigabytes and minutes; its exit
// code is 1 if some peak was beyond the bound, which is TAGMATCH_UNEXPECTED_LIMIT and 64 MiB. It
// needs Linux.
//
// Concurrency: each rank has one goroutine that sends and receives; compare runs one measurement at
// a time.
package main
