"""GPU work of known size that uses only the driver's library and starts within a second.

    python3 kernels.py work DUTY SEED [MIB]
                                          passes in bursts of random length, for a fraction of the
    time; allocates memory before
    python3 kernels.py solo SECONDS       print the seconds of one pass without other load
    python3 kernels.py hold MIB           allocate memory, without work
    python3 kernels.py fault              write to an invalid address: XID 31

Needs only Python. The variable `CUBIN` contains the path of compiled kernels; without it the driver
compiles them.
"""

import ctypes
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any

PTX = """\
.version 7.0
.target sm_70
.address_size 64

.visible .entry spin(.param .u32 rounds, .param .u64 out)
{
    .reg .pred %p<3>;
    .reg .u32 %r<3>;
    .reg .f32 %f<3>;
    .reg .u64 %d<2>;
    ld.param.u32 %r1, [rounds];
    ld.param.u64 %d1, [out];
    mov.u32 %r2, 0;
    mov.f32 %f1, 0f3F7FFFFF;
    mov.f32 %f2, 0f3F7FFFFE;
AGAIN:
    fma.rn.f32 %f1, %f1, %f2, %f2;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra AGAIN;
    setp.eq.f32 %p2, %f1, 0f00000000;
    @%p2 st.global.f32 [%d1], %f1;
    ret;
}

.visible .entry fault()
{
    .reg .u32 %r<2>;
    .reg .u64 %d<2>;
    mov.u64 %d1, 0x7ff000000000;
    mov.u32 %r1, 1;
    st.global.u32 [%d1], %r1;
    ret;
}
"""

ROUNDS = 200_000
"""Rounds of the loop in a pass, which take about half a millisecond."""
BATCH = 8
"""Passes between two reads of the clock."""
BLOCKS, THREADS = 132, 128
"""A small part of the GPU, so that its clocks stay constant."""
PRINT_EVERY = 0.02  # seconds


class Cuda:
    """A context on the first visible GPU, with the kernels."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self._module = ctypes.c_void_p()
        module = ctypes.byref(self._module)
        if path := os.environ.get("CUBIN"):
            self._call("cuModuleLoad", module, path.encode())
        else:
            self._call("cuModuleLoadData", module, PTX.encode())

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise RuntimeError(f"{name}: error {code}")

    def allocate(self, size: int) -> int:
        """Allocate memory and return its address."""
        found = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(found), ctypes.c_size_t(size))
        return found.value

    def kernel(self, name: str, blocks: int, threads: int, *values: Any) -> Callable[[], None]:
        """Return a function that launches a kernel."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        shape = [ctypes.c_uint(number) for number in (blocks, 1, 1, threads, 1, 1, 0)]
        places = [ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in values]
        passed = (ctypes.c_void_p * max(len(places), 1))(*places)

        def launch(_alive: object = values) -> None:
            self._call("cuLaunchKernel", function, *shape, None, passed, None)

        return launch

    def wait(self) -> None:
        """Wait until all launched kernels are done."""
        self._call("cuCtxSynchronize")


class Passes:
    """Runs and counts passes.

    Args:
        mebibytes: memory to allocate besides.
    """

    def __init__(self, mebibytes: int = 0) -> None:
        self._cuda = Cuda()
        if mebibytes:
            self._cuda.allocate(mebibytes << 20)
        out = ctypes.c_uint64(self._cuda.allocate(4096))
        self._launch = self._cuda.kernel("spin", BLOCKS, THREADS, ctypes.c_uint(ROUNDS), out)
        self.done = 0

    def batch(self) -> None:
        for _ in range(BATCH):
            self._launch()
        self._cuda.wait()
        self.done += BATCH


def work(duty: float, seed: int, mebibytes: int = 0) -> None:
    """Work until killed, and print the monotonic time and the number of passes.

    Each length is random, because a load in step with the driver's samples is measured wrongly.
    """
    passes = Passes(mebibytes)
    drawn = random.Random(seed)
    printed = 0.0
    while True:
        begun = time.monotonic()
        length = drawn.uniform(0.02, 0.18)
        while (passed := time.monotonic() - begun) < length:
            passes.batch()
            if time.monotonic() - printed > PRINT_EVERY:
                printed = time.monotonic()
                print(printed, passes.done, flush=True)
        time.sleep(passed * (1 - duty) / duty)


def solo(seconds: float) -> None:
    """Print the seconds of one pass, after the clocks have risen."""
    passes = Passes()
    _for(passes, seconds / 4)
    print(_for(passes, seconds))


def _for(passes: Passes, seconds: float) -> float:
    """Work for some time without a pause; return the seconds of one pass."""
    begun, before = time.monotonic(), passes.done
    while (passed := time.monotonic() - begun) < seconds or passes.done == before:
        passes.batch()
    return passed / (passes.done - before)


def hold(mebibytes: int) -> None:
    """Allocate memory and wait until killed."""
    Cuda().allocate(mebibytes << 20)
    print(time.monotonic(), 0, flush=True)
    time.sleep(1 << 30)


def fault() -> None:
    """Write to an invalid address."""
    cuda = Cuda()
    launch = cuda.kernel("fault", 1, 1)
    print(time.monotonic(), 0, flush=True)
    launch()
    cuda.wait()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        work(float(sys.argv[2]), *map(int, sys.argv[3:]))
    elif sys.argv[1] == "solo":
        solo(float(sys.argv[2]))
    elif sys.argv[1] == "hold":
        hold(int(sys.argv[2]))
    else:
        fault()
