// Plot draws what bench has measured, in one picture each: latency and bandwidth over the size of
// messages, of tagmatch, its peers and the raw limit, and latency over the depth of a queue.
//
//	go run ./bench compare -json -rows '*' >compare.json
//	go run ./bench limits -json >limits.json
//	GOWORK=off go -C bench/plot run . -out /tmp/plots $PWD/compare.json $PWD/limits.json
//
// It reads the JSON lines of compare, limits, lat, bw and depth, and writes an SVG and a PNG of
// each picture for which there is something: latency-shm, bandwidth-shm, latency-tcp,
// bandwidth-tcp, depth-posted and so on. A module of its own, so that who uses tagmatch has no
// plotting library among its dependencies.
//
// Concurrency: none.
package main
