"""The other side of bench compare's rows coll-*: what bench coll measures of tagmatch, in gloo by torch.distributed.

  gloo.py OPERATION -r RANKS [-s bytes] [-n calls] -p CPU,CPU

Rank 0 starts the others and prints one JSON object, with the names that bench -json has.
"""

import argparse
import json
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("operation")
parser.add_argument("-r", dest="ranks", type=int, required=True)
parser.add_argument("-s", dest="size", type=int, default=8)
parser.add_argument("-n", dest="calls", type=int, default=100)
parser.add_argument("-p", dest="cpus", required=True)
args = parser.parse_args()
ranks, block = args.ranks, args.size // 4

with socket.socket() as s:  # the kernel chooses a port; rank 0 takes it a moment later
    s.bind(("127.0.0.1", 0))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]), GLOO_SOCKET_IFNAME="lo")
rank = next((r for r in range(1, ranks) if os.fork() == 0), 0)
os.sched_setaffinity(0, {int(args.cpus.split(",")[rank % 2])})
torch.set_num_threads(1)
dist.init_process_group("gloo", rank=rank, world_size=ranks)


def operand(r, n, first=0):
    """What rank r gives: n elements from the first on."""
    return (torch.arange(first, first + n) % 7 + 1 + r).float()


mine, whole, other = operand(rank, block), operand(rank, block * ranks), torch.zeros(block * ranks)
parts = list(whole.chunk(ranks)) if block > 0 else []
run, result, want = {
    "allreduce": (lambda root: dist.all_reduce(mine), mine, lambda: sum(operand(r, block) for r in range(ranks))),
    "bcast": (lambda root: dist.broadcast(mine, root), mine, lambda: operand(0, block)),
    "allgather": (lambda root: dist.all_gather(parts, mine), whole, lambda: torch.cat([operand(r, block) for r in range(ranks)])),
    "alltoall": (
        lambda root: dist.all_to_all_single(other, whole),
        other,
        lambda: torch.cat([operand(r, block, rank * block) for r in range(ranks)]),
    ),
    "barrier": (lambda root: dist.barrier(), None, None),
}[args.operation]
run(0)
if want is not None and not torch.equal(result, want()):
    sys.exit("gloo.py: a result is wrong")
for t in (mine, whole):  # sums do not grow
    t.zero_()


def calls(n):
    start = time.perf_counter()
    for i in range(n):
        run(i % ranks)  # each rank is the root in turn, as in bench coll
    dist.barrier()
    return (time.perf_counter() - start) / max(n, 1) * 1e6


calls(min(args.calls // 10 + 1, 1000))
k = min(args.calls, 9)
rounds = sorted(calls(args.calls * (i + 1) // k - args.calls * i // k) for i in range(k))
if rank == 0:
    print(json.dumps({"call_us": rounds[k // 2], "least_us": rounds[0]}), flush=True)
    for _ in range(1, ranks):
        os.wait()
