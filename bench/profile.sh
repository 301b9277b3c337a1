#!/bin/sh
# Renews the profile that the measuring programs are built with (default.pgo beside each of them): both transports, small
# messages in turn, in windows and by many at once, many goroutines, and sums of all ranks. To be run alone on a machine
# with two processors or more.
set -eu
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
go test -c -o "$tmp/p2p.test" ./p2p
for transport in rc tmsrq; do
	TAGMATCH_TRANSPORT=$transport taskset -c 1 "$tmp/p2p.test" -test.run - -test.bench '(Window|Solo|Many)/shm' -test.benchtime 4s \
		-test.cpuprofile "$tmp/$transport.prof"
done
"$tmp/p2p.test" -test.run - -test.bench 'SendRecv/(shm|tcp)|Goroutines/shm/(8|64)$' -test.benchtime 4s -test.cpuprofile "$tmp/goroutines.prof"
go test -c -o "$tmp/coll.test" ./coll
"$tmp/coll.test" -test.run - -test.bench AllReduce -test.benchtime 4s -test.cpuprofile "$tmp/coll.prof"
go tool pprof -proto "$tmp/rc.prof" "$tmp/tmsrq.prof" "$tmp/goroutines.prof" "$tmp/coll.prof" >"$tmp/default.pgo"
for program in bench examples/pingpong examples/bandwidth; do
	cp "$tmp/default.pgo" "$program/default.pgo"
done
