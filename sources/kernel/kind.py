"""What the kernel source declares about itself."""

from typing import Final

from pipeline.component.kind import Kind

KIND: Final = Kind(
    summary="reads XID errors from the kernel log, with the processes that it names",
    options="sources.kernel.options:Options",
    factory="sources.kernel.source:KernelSource",
    doctor="sources.kernel.doctor:examine",
    timeout_fix="check the file systems of path and of proc",
)
