"""What the hostengine source declares about itself."""

from typing import Final

from pipeline.component.kind import Kind

KIND: Final = Kind(
    summary="queries a DCGM host engine for the profiling fields that NVML does not provide",
    options="sources.hostengine.options:Options",
    factory="sources.hostengine.source:HostEngineSource",
    uses_plan=True,
    doctor="sources.hostengine.doctor:examine",
    timeout_fix="check that nv-hostengine responds (dcgmi discovery -l), "
    "and the file system of library",
    resolves=frozenset({"devices"}),
)
