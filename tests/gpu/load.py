"""GPU load for some time: `nccl` on all GPUs; the others on one.

python3 load.py nccl SECONDS [EVERY PAUSE]  one process a GPU, all-reduce and matrix products; all
                                        pause for PAUSE seconds in each EVERY seconds
python3 load.py share SECONDS GPU DUTY  matrix products for DUTY (0 to 1) of each 100 ms
python3 load.py burst SECONDS GPU LENGTH EVERY  matrix products for LENGTH seconds in each EVERY
python3 load.py hold SECONDS MIB DUTY   the same, with allocated memory; prints the GPU
python3 load.py serve SECONDS MIB LOW HIGH PERIOD  the same, for a part of the time that goes from
                                        LOW to HIGH and back within PERIOD seconds
"""

import math
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def nccl(rank: int, world: int, seconds: float, every: float, pause: float) -> None:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29531")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    vector = torch.randn(64 << 20, device="cuda")
    end = time.monotonic() + seconds
    paused = time.monotonic()
    while True:
        for _ in range(20):
            torch.mm(matrix, matrix)
        dist.all_reduce(vector)
        if time.monotonic() - paused > every:
            torch.cuda.synchronize()
            time.sleep(pause)
            paused = time.monotonic()
        # All ranks must stop at the same round, otherwise one would wait forever.
        going = torch.tensor([float(time.monotonic() < end)], device="cuda")
        dist.all_reduce(going, op=dist.ReduceOp.MIN)
        if going.item() == 0:
            break
    dist.destroy_process_group()


def share(seconds: float, gpu: int, duty: float) -> None:
    torch.cuda.set_device(gpu)
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        while time.monotonic() - start < 0.1 * duty:
            torch.mm(matrix, matrix)
            torch.cuda.synchronize()
        time.sleep(max(0.0, 0.1 - (time.monotonic() - start)))


def serve(seconds: float, mebibytes: int, low: float, high: float, period: float) -> None:
    kept = torch.full((mebibytes << 20,), 1, device="cuda", dtype=torch.uint8)
    print(f"GPU-{torch.cuda.get_device_properties(kept.device).uuid}", flush=True)
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        part = (1 - math.cos(2 * math.pi * now / period)) / 2
        share(1.0, 0, low + (high - low) * part)


def burst(seconds: float, gpu: int, length: float, every: float) -> None:
    torch.cuda.set_device(gpu)
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    torch.mm(matrix, matrix)
    torch.cuda.synchronize()
    end = time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        while time.monotonic() - start < length:
            torch.mm(matrix, matrix)
            torch.cuda.synchronize()
        time.sleep(max(0.0, every - (time.monotonic() - start)))


def hold(seconds: float, mebibytes: int, duty: float) -> None:
    kept = torch.full((mebibytes << 20,), 1, device="cuda", dtype=torch.uint8)
    print(f"GPU-{torch.cuda.get_device_properties(kept.device).uuid}", flush=True)
    share(seconds, 0, duty)


if __name__ == "__main__":
    if sys.argv[1] == "nccl":
        count = torch.cuda.device_count()
        every, pause = map(float, sys.argv[3:5]) if sys.argv[3:] else (math.inf, 0.0)
        mp.spawn(nccl, args=(count, float(sys.argv[2]), every, pause), nprocs=count)
    elif sys.argv[1] == "serve":
        serve(float(sys.argv[2]), int(sys.argv[3]), *map(float, sys.argv[4:7]))
    elif sys.argv[1] == "burst":
        burst(float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
    elif sys.argv[1] == "hold":
        hold(float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        share(float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
