// Bandwidth streams messages from one rank to another, many under way at once, and prints MB/s and messages a second by size.
//
//	go run ./examples/bandwidth [-device auto|shm|tcp] [-transport auto|rc|tmsrq] [-sizes 8,64k,1m] [-window 64] [-iters N] [-check] [-json]
//
// Started plainly it launches itself as two ranks on this host; under a launcher, ranks 0 and 1 measure.
//
// Concurrency: each rank has one goroutine that sends or receives. This command carries no compatibility promise yet.
package main
