"""A plain loop, started by torchrun, that prints the slowest rank's seconds per call of all_reduce on gloo."""

from __future__ import annotations

import sys
import time
from statistics import median

import torch
import torch.distributed as dist

WARM_UP = 20
LOOPS = 15
CALLS = 20


def main(nbytes: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    x = torch.rand(nbytes // 4)
    loop(x, WARM_UP)
    times = torch.tensor([loop(x, CALLS) for _ in range(LOOPS)], dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        print(median(times.tolist()))
    dist.destroy_process_group()


def loop(x: torch.Tensor, calls: int) -> float:
    x.fill_(1e-30)  # so that sums of sums stay finite
    dist.barrier()
    start = time.perf_counter()
    for _ in range(calls):
        dist.all_reduce(x)
    return (time.perf_counter() - start) / calls


if __name__ == "__main__":
    main(int(sys.argv[1]))
