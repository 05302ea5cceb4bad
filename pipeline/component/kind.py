"""What a kind of source or sink declares about itself, in the module `kind` of its package."""

from dataclasses import dataclass
from typing import Final, Literal

from pipeline.base.telemetry import Family
from pipeline.component.contracts import Delivery
from pipeline.model import Resolves

HANGING_FILE: Final = (
    "check the file system of its path: a file server may be unavailable, or a mount stale"
)
SILENT_SERVER: Final = (
    "check that the API server responds (kubectl get nodes with the same kubeconfig), and that a "
    "credential plugin of the kubeconfig terminates"
)

Role = Literal["source", "sink"]

Holders = Literal["none", "some", "all", "relayed"]
"""Which holders a source reports: none, some, or all of the node; or it relays sources of other
kinds, which may report all."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What one kind of source or sink declares about itself.

    Attributes:
        summary: one line for `podgpu kinds`.
        options: dotted path `module:Class` of the options, a `msgspec.Struct`. That module imports
            no third-party library but msgspec, so that `check` and `schema` start quickly.
        factory: dotted path of the component's class. For a source, it is called with the options;
            for a sink, with the options and the sink's context.
        delivery: how a sink receives snapshots.
        uses_plan: whether the component reads its context's plan; it restarts if the plan changes.
        doctor: dotted path of the function that makes the checks of `podgpu doctor`; empty if there
            are none. It is called with the options and a
            `pipeline.diagnostics.context.DoctorContext`; in a thread, unless it is a coroutine
            function. It returns a finding or a list of findings.
        families: podgpu's own metrics that only components of this kind, or of a few kinds, have.
        timeout_fix: what to do if the checks do not finish; empty for the general advice.
        holders: which holders a source reports. Which GPUs are free is only known if a source
            reports all.
        resolves: what the join waits for from a source. `devices`: the source enumerates devices.
            `names`: it reports the names of devices; ids that match no device count as unresolved
            only after that. `claims`: it reports the kubelet's allocations; schedulers'
            annotations are valid only after that. `owners`: it lists all jobs, or all containers
            without pods; no device is known to be free before that.
    """

    summary: str
    options: str
    factory: str
    delivery: Delivery = Delivery.LATEST
    uses_plan: bool = False
    doctor: str = ""
    families: tuple[Family, ...] = ()
    timeout_fix: str = ""
    holders: Holders = "none"
    resolves: frozenset[Resolves] = frozenset()
