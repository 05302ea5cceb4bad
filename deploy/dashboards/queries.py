"""Parts of queries, links and colours that several dashboards use."""

from typing import Final

from deploy.dashboards.panels import Cell, Link
from deploy.dashboards.recording import OF_DEVICE
from deploy.dashboards.writing import Json, events
from pipeline.fields.xid_catalogue import ADVICE

OF_HOLDER: Final = f"namespace, pod, container, hpc_job, owner_uid, {OF_DEVICE}"

COLOURS: Final = {
    "busy": "green",
    "idle": "orange",
    "free": "blue",
    "unknown": "#808080",
    "unattributed": "purple",
    "held": "green",
    "down": "red",
}
"""Colours of the states of a device, the same as on the status page."""

NODE_LINK: Final = Link("Node", "podgpu-node", {"node": "${__value.raw}"})
NODE_BY_NAME: Final = Link("Node", "podgpu-node", {"node": "${__series.name}"})
GPU_LINK: Final = Link(
    "GPU", "podgpu-node", {"node": "${__data.fields.Node}", "gpu": "${__value.raw}"}
)
NAMESPACE_LINK: Final = Link("Pods", "podgpu-pods", {"namespace": "${__value.raw}"})
NAMESPACE_BY_NAME: Final = Link("Pods", "podgpu-pods", {"namespace": "${__series.name}"})
POD_LINK: Final = Link(
    "Pod",
    "podgpu-pods",
    {"namespace": "${__data.fields.Namespace}", "pod": "${__value.raw}"},
)
NODE: Final = Cell(link=NODE_LINK)
GPU: Final = Cell(link=GPU_LINK)
NAMESPACE: Final = Cell(link=NAMESPACE_LINK)
POD: Final = Cell(link=POD_LINK)
LOW_IS_BAD: Final = ((None, "orange"), (0.2, "yellow"), (0.5, "green"))
"""Colours of the part of a device that is used, from 0 to 1."""
LOW_PER_CENT_IS_BAD: Final = ((None, "orange"), (20, "yellow"), (50, "green"))
HOT: Final = ((None, "green"), (75, "yellow"), (85, "red"))
"""Colours of a temperature in degrees Celsius."""
FULL: Final = ((None, "green"), (0.9, "yellow"), (0.97, "red"))
"""Colours of the part of memory that is in use."""

_SERIOUS = {"reset_gpu", "reboot_node", "restart_vm", "check_hardware", "contact_vendor"}
ACTION: Final = Cell(
    look="text",
    words={
        action: (
            text,
            "red" if action in _SERIOUS else "text" if action == "none" else "orange",
        )
        for action, text in ADVICE.items()
    },
)


def rate(counter: str, select: str, labels: str) -> str:
    """Return the growth per second of a counter of containers or devices, once for each."""
    return f"max by ({labels}) (rate({counter}{{{select}}}[$__rate_interval]))"


def of_containers(quantity: str, select: str) -> str:
    """Return the growth per second of a quantity of each container on each device."""
    return rate(f"podgpu_container_{quantity}_total", select, OF_HOLDER)


def of_devices(quantity: str, select: str) -> str:
    """Return the growth per second of a quantity of each device."""
    return rate(f"podgpu_device_{quantity}_total", select, OF_DEVICE)


def device_states(select: str) -> dict[str, str]:
    """Return queries for the number of devices in each state.

    Busy time of containers, other busy time, and held time that is not busy. A device that is used
    without being held is busy and free.
    """
    busy = of_devices("busy_seconds", select)
    other = of_devices("unattributed_busy_seconds", select)
    free, unknown = (of_devices(f"{name}_seconds", select) for name in ("free", "unknown_held"))
    accounted = of_devices("accounted_seconds", select)
    return {
        "busy": f"sum({busy} - {other})",
        "unattributed": f"sum({other})",
        "idle": f"sum(clamp_min({accounted} - {free} - {unknown} - {busy}, 0))",
        "free": f"sum({free})",
        "unknown": f"sum({unknown})",
    }


_SEEN = "podgpu_xid_last_seen_timestamp_seconds"
_VICTIMS = "podgpu_container_xid_errors_total"


def xid_rows(select: str, *, of_pods: bool = False) -> str:
    """Return a query for the XID errors within the time shown, one row for each affected container.

    The value is the time of the last error in milliseconds. The containers are those of which
    podgpu counted the error, not those that hold the GPU now.

    Args:
        select: selects devices, or with `of_pods` containers.
        of_pods: errors without a known container are left out.
    """
    devices = "" if of_pods else select
    seen = (
        "(topk by (UUID, xid) (1, max by (Hostname, gpu, UUID, xid) "
        f"(last_over_time({_SEEN}{{{devices}}}[$__range]))) > time() - $__range_s)"
    )
    containers = (
        "max by (UUID, xid, namespace, pod, container, hpc_job) "
        f"(last_over_time({_VICTIMS}{{{select}}}[$__range]))"
    )
    # Another release can have another text: one of them.
    info = (
        "topk by (Hostname, xid) (1, max by (Hostname, xid, meaning, action) "
        "(last_over_time(podgpu_xid_info[$__range])))"
    )
    rows = f"{seen} * on (UUID, xid) group_right (Hostname, gpu) ({containers} > bool 0)"
    if not of_pods:
        rows = f"({rows} or on (UUID, xid) {seen})"
    explained = f"{rows} * on (Hostname, xid) group_left (meaning, action) {info}"
    return f"1000 * ({explained} or on (UUID, xid, namespace, pod, container, hpc_job) {rows})"


XID_COLUMNS: Final = {
    "Value": "Last",
    "Hostname": "Node",
    "gpu": "GPU",
    "xid": "XID",
    "meaning": "Meaning",
    "action": "Advised action",
    "namespace": "Namespace",
    "pod": "Pod",
    "container": "Container",
    "hpc_job": "Job",
}
XID_CELLS: Final = {
    "Last": Cell(unit="dateTimeFromNow"),
    "Node": NODE,
    "GPU": GPU,
    "Advised action": ACTION,
    "Namespace": NAMESPACE,
    "Pod": POD,
}


def xid_events(select: str, *, of_pods: bool = False) -> list[Json]:
    """Return marks for XID errors: one for each affected container, and for errors without any.

    An error is recognised by a count that has grown, or is new. The time of the mark is that of
    the last error with this code on the GPU.

    Args:
        select: selects devices, or with `of_pods` containers.
        of_pods: errors without a known container have no mark.
    """

    def new(metric: str, labels: str) -> str:
        def last(offset: str) -> str:
            over = f"{metric}{{{select}}}[$__rate_interval]{offset}"
            return f"max by ({labels}) (last_over_time({over}))"

        now, before = last(""), last(" offset $__rate_interval")
        return f"({now} > {before} or {now} unless {before})"

    devices = "" if of_pods else select
    time = f"max by (UUID, xid) (last_over_time({_SEEN}{{{devices}}}[$__rate_interval]))"
    victims = new(_VICTIMS, "namespace, pod, container, hpc_job, Hostname, gpu, UUID, xid")
    made = [
        events(
            "XID errors of containers",
            f"1000 * {time} * on (UUID, xid) group_right () ({victims} > bool 0)",
            title="XID {{xid}}: {{namespace}}/{{pod}}",
            text="GPU {{gpu}} of {{Hostname}}, {{container}} {{hpc_job}}",
            tags="xid,namespace,pod",
            colour="red",
        )
    ]
    if not of_pods:
        errors = new(_SEEN, "Hostname, gpu, UUID, xid")
        counted = f"max by (UUID, xid) (last_over_time({_VICTIMS}[$__rate_interval]))"
        made.append(
            events(
                "Other XID errors",
                f"1000 * ({errors} unless on (UUID, xid) {counted})",
                title="XID {{xid}}: GPU {{gpu}} of {{Hostname}}",
                text="{{UUID}}",
                tags="xid",
                colour="orange",
            )
        )
    return made
