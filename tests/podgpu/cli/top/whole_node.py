"""A status document that has everything: shared GPUs, MIG, problems, lost and unknown devices."""

from datetime import UTC, datetime, timedelta
from math import sin
from typing import Any, Final

from pipeline.status_page.status_document import (
    AccessStatus,
    ErrorStatus,
    GpuStatus,
    HolderStatus,
    InstanceStatus,
    SinkStatus,
    SourceStatus,
    StatusDocument,
    XidStatus,
)
from pipeline.status_page.use_format import (
    AffectedStatus,
    HistoryStatus,
    ProblemStatus,
    ProcessStatus,
    UserStatus,
    UseStatus,
)
from tests.podgpu.cli.top.whole_usage import whole_usage

NOW = datetime(2027, 1, 15, 8, 10, tzinfo=UTC)
GIB = 1 << 30


def ago(**parts: float) -> datetime:
    return NOW - timedelta(**parts)


def names(whole: str) -> dict[str, Any]:
    """Return the names of a container: `namespace/pod container`."""
    pod, _, container = whole.partition(" ")
    namespace, _, pod = pod.partition("/")
    return {"namespace": namespace, "pod": pod, "container": container or None, "uid": f"u-{pod}"}


def use(
    busy: float | None,
    gib: float | None,
    watt_hours: float | None,
    error: float | None = 0,
) -> UseStatus:
    return UseStatus(
        busy_percent=busy,
        busy_error_percent=error,
        memory_used_bytes=None if gib is None else round(gib * GIB),
        energy_joules=None if watt_hours is None else watt_hours * 3600,
    )


def holder(whole: str, own: UseStatus | None, **other: Any) -> HolderStatus:
    found: dict[str, Any] = {
        "since": ago(hours=3),
        "since_known": True,
        "share": None,
        "replicas": None,
        "source": "kubelet",
        "evidence": "kubelet_ids",
        "age_seconds": 3.0,
        "use": own,
    }
    return HolderStatus(**names(whole), **(found | other))


def hour(busy: float, gib: float, watts: float | None = None, *, gap: int = 0) -> HistoryStatus:
    """Return a last hour with waves around these values, and a gap of unknown steps."""
    waves = [1 + 0.3 * sin(step / 9) for step in range(120)]
    use_values: list[float | None] = [round(min(busy * wave, 100), 1) for wave in waves]
    for step in range(60, 60 + gap):
        use_values[step] = None
    return HistoryStatus(
        step_seconds=30,
        utilization_percent=tuple(use_values),
        memory_used_bytes=tuple(round(gib * GIB * (0.7 + 0.3 * step / 119)) for step in range(120)),
        power_watts=None if watts is None else tuple(round(watts * wave, 1) for wave in waves),
    )


def gpu(index: int, name: str, gib: float, **other: Any) -> GpuStatus:
    found: dict[str, Any] = {
        "uuid": f"GPU-{index:08x}-5eed-4a5e-9c0d-100000000000",
        "state": "up",
        "index": index,
        "name": name,
        "memory_total_bytes": round(gib * GIB),
        "holders": (),
        "holders_left_out": 0,
        "conflicts": 0,
        "instances": (),
        "utilization_percent": 0.0,
        "memory_used_bytes": 0,
        "power_watts": 72.0,
        "power_limit_watts": 700.0,
        "temperature_celsius": 31.0,
    }
    return GpuStatus(**(found | other))


def instance(parent: int, gi: int, profile: str, gib: float, **other: Any) -> InstanceStatus:
    found: dict[str, Any] = {
        "uuid": f"MIG-{parent:08x}-{gi:04x}-4a5e-9c0d-100000000000",
        "state": "up",
        "profile": profile,
        "gpu_instance_id": gi,
        "compute_instance_id": 0,
        "memory_total_bytes": round(gib * GIB),
        "holders": (),
        "holders_left_out": 0,
        "conflicts": 0,
        "utilization_percent": None,
        "memory_used_bytes": 0,
    }
    return InstanceStatus(**(found | other))


def _gpus() -> tuple[GpuStatus, ...]:
    h200, h100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3 (simulated)"
    train = holder("research/llama-train-0 trainer", use(97, 121.4, 2410))
    return (
        gpu(
            0, h200, 140.4, utilization_percent=97.0, memory_used_bytes=round(121.6 * GIB),
            power_watts=655.0, temperature_celsius=64.0, holders=(train,),
            history=hour(95, 121.6, 640),
            processes=(ProcessStatus(pid=4711, kind="compute", memory_used_bytes=121 * GIB),),
        ),
        gpu(
            1, h200, 140.4, utilization_percent=0.0, memory_used_bytes=round(121.5 * GIB),
            power_watts=118.0, temperature_celsius=88.0, holders=(train,),
            history=hour(0, 121.5, 110),
        ),
        gpu(
            2, h200, 140.4, utilization_percent=61.0, memory_used_bytes=round(138.0 * GIB),
            power_watts=402.0, temperature_celsius=55.0, history=hour(60, 138, 400, gap=20),
            holders=(
                holder("chat/assistant-0 server", use(45, 80.2, 512, 3.9), replicas=1),
                holder("search/embeddings-0 encoder", use(15, 21.0, 130, 3.1), share=0.25),
                holder(
                    "notebooks/scratch-0 jupyter", use(0, 34.0, 0.2, 0.2), replicas=2,
                    since=ago(days=2), since_known=False,
                ),
            ),
            memory_unattributed_bytes=round(2.8 * GIB),
            processes=(
                ProcessStatus(pid=120, kind="compute", memory_used_bytes=80 * GIB),
                ProcessStatus(pid=121, kind="mps", memory_used_bytes=None),
            ),
            processes_left_out=3,
        ),
        gpu(
            3, h200, 140.4, utilization_percent=38.0, memory_used_bytes=30 * GIB,
            power_watts=260.0, temperature_celsius=48.0, history=hour(38, 30, 260),
            holders=(
                holder("vision/detector-0 detector", use(21, 12.0, 88, None), replicas=1),
                holder("vision/tracker-0 tracker", use(None, None, None), replicas=1),
            ),
            users=(UserStatus(**names("ops/debug-shell shell"), use=use(4, 0.01, 0.4)),),
            access=(
                AccessStatus(
                    **names("ops/monitor agent"), source="kubelet", evidence="visible_devices"
                ),
            ),
        ),
        gpu(
            4, h100, 80, utilization_percent=None, memory_used_bytes=18 * GIB, power_watts=190.0,
            temperature_celsius=41.0, history=None,
            instances=(
                instance(
                    4, 1, "3g.40gb", 39.5, memory_used_bytes=12 * GIB,
                    holders=(holder("notebooks/lab-0 jupyter", use(12, 12.0, 41)),),
                ),
                instance(
                    4, 5, "2g.20gb", 19.5, memory_used_bytes=6 * GIB,
                    holders=(
                        holder("serving/small-0 server", use(50, 3.0, 60), replicas=1),
                        holder("serving/small-1 server", use(48, 3.0, 58), replicas=1),
                    ),
                ),
                instance(4, 6, "1g.10gb", 9.5),
            ),
        ),
        gpu(
            5, h100, 80, state="lost", utilization_percent=None, memory_used_bytes=None,
            power_watts=None, power_limit_watts=None, temperature_celsius=None,
            holders=(
                holder("research/finetune-0 trainer", None, share=0.5),
                holder("research/eval-0 eval", None, share=0.5),
            ),
            xids=(
                XidStatus(
                    code=79, errors=1, last_seen=ago(minutes=2),
                    meaning="GPU has fallen off the bus", action="restart_bm",
                ),
            ),
            history=hour(70, 60, 500, gap=60),
        ),
        gpu(
            6, h100, 80, utilization_percent=83.0, memory_used_bytes=round(77.5 * GIB),
            power_watts=610.0, temperature_celsius=71.0, conflicts=2, history=hour(80, 77, 600),
            holders=(
                holder("batch/encode-0 encode", use(83, 77.0, 902, 10.2), since=ago(minutes=12)),
                holder("batch/render-0 render", use(0, 0, 0), since=ago(minutes=12)),
            ),
        ),
        gpu(7, h100, 80, history=hour(0, 0, 72), holders=()),
        gpu(
            8, "Graphics Device", 80, state="unknown", utilization_percent=None, holders=None,
            memory_used_bytes=None, power_watts=None, power_limit_watts=None,
            temperature_celsius=None, memory_total_bytes=None,
        ),
    )  # fmt: skip


def _affected(whole: str, part: Any) -> AffectedStatus:
    return AffectedStatus(**names(whole), part=part)


def _problems() -> tuple[ProblemStatus, ...]:
    return (
        ProblemStatus(
            kind="xid",
            severity="critical",
            where="GPU 5",
            device="GPU-00000005-5eed-4a5e-9c0d-100000000000",
            text="GPU 5: XID 79: the GPU has fallen off the bus",
            advice="drain the node and reboot it; if it happens again, contact the vendor",
            containers=(
                _affected("research/finetune-0 trainer", "caused"),
                _affected("research/eval-0 eval", "used"),
            ),
            since=ago(minutes=2),
            since_known=True,
        ),
        ProblemStatus(
            kind="gpu_lost",
            severity="critical",
            where="GPU 5",
            device="GPU-00000005-5eed-4a5e-9c0d-100000000000",
            text="GPU 5 is lost: it was present before and no longer responds",
            advice="look for its XID errors, drain the node and reboot it; if the GPU stays away, "
            "check the board, its power and its connectors",
            containers=(
                _affected("research/finetune-0 trainer", "held"),
                _affected("research/eval-0 eval", "held"),
            ),
            since=ago(minutes=2),
            since_known=True,
        ),
        ProblemStatus(
            kind="conflict",
            severity="warning",
            where="GPU 6",
            device="GPU-00000006-5eed-4a5e-9c0d-100000000000",
            text="GPU 6: claims of 2 pods conflict with others",
            advice="compare them with the processes on the GPU, and delete the pod whose claim is "
            "wrong",
            containers=(
                _affected("batch/render-0 render", "claims"),
                _affected("batch/encode-0 encode", "claims"),
            ),
            since=ago(minutes=12),
        ),
        ProblemStatus(
            kind="row_remap_pending",
            severity="warning",
            where="GPU 7",
            device="GPU-00000007-5eed-4a5e-9c0d-100000000000",
            text="GPU 7: a broken row of its memory waits to be replaced at the next reset",
            advice="when no pod uses it, reset the GPU or reboot the node",
            since=ago(days=3),
        ),
        ProblemStatus(
            kind="source_down",
            severity="warning",
            where="source pods",
            device=None,
            text="source pods is down: https://10.0.0.1:443: the API server responded with status "
            "403; allow the ServiceAccount to list pods",
            since=ago(minutes=40),
            since_known=True,
        ),
    )


def _source(name: str, kind: str, **other: Any) -> SourceStatus:
    found: dict[str, Any] = {
        "state": "up", "age_seconds": 0.4, "confirmed_seconds": None, "devices": None,
        "unresolved": 0, "restarts": 0, "error": None,
    }  # fmt: skip
    return SourceStatus(name=name, kind=kind, **(found | other))


def _sink(name: str, kind: str, **other: Any) -> SinkStatus:
    found: dict[str, Any] = {
        "up": True, "delivering": None, "queued": None, "queue_bytes": None, "emitted": 1000,
        "queue_writable": None, "oldest_seconds": None, "dropped": 0, "rejected": 0, "errors": 0,
        "lost_seconds": None, "error": None,
    }  # fmt: skip
    return SinkStatus(name=name, kind=kind, **(found | other))


_SAMPLE_DATA: Final = (
    "The usage of 28 days and the energy of containers contain sample data of podgpu demo, not "
    "measured."
)


def whole_node() -> StatusDocument:
    """Return the document."""
    error = ErrorStatus(
        text="https://10.0.0.1:443: the API server responded with status 403; allow the "
        "ServiceAccount to list pods",
        age_seconds=2400.0,
        over=False,
    )
    return StatusDocument(
        node="demo",
        podgpu="0.1.0",
        notes=(
            'This is a recording, not this machine (the source "recording").',
            _SAMPLE_DATA,
            "Simulated: GPU 4-7.",
        ),
        time=NOW,
        started=ago(hours=5),
        ready=True,
        waiting_for=None,
        driver="580.95.05",
        gpus=_gpus(),
        devices_left_out=0,
        sources=(
            _source("gpus", "nvml", devices=9),
            _source("kubelet", "podresources", confirmed_seconds=3.0),
            _source("pods", "pods", state="down", age_seconds=2400.0, error=error),
        ),
        sinks=(
            _sink("metrics", "prometheus"),
            _sink("push", "otlp", delivering=False, queued=12_345, dropped=7),
        ),
        usage=whole_usage(NOW),
        problems=_problems(),
    )
