// Pingpong bounces messages between two ranks and prints the half round trip and the bandwidth by message size.
//
//	go run ./examples/pingpong [-device auto|shm|tcp] [-transport auto|rc|tmsrq] [-sizes 8,1k,1m] [-iters N] [-check] [-json]
//
// Started plainly it launches itself as two ranks on this host; under a launcher, ranks 0 and 1 measure.
//
// Concurrency: each rank has one goroutine that sends and receives. This command carries no compatibility promise yet.
package main
