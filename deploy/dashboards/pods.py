"""The dashboard of pods and teams: the devices that they hold, and how well they use them."""

from deploy.dashboards.panels import Cell, Panel, Target
from deploy.dashboards.queries import (
    GPU,
    LOW_IS_BAD,
    LOW_PER_CENT_IS_BAD,
    NAMESPACE,
    NAMESPACE_BY_NAME,
    NODE,
    OF_HOLDER,
    POD,
    XID_CELLS,
    XID_COLUMNS,
    of_containers,
    xid_events,
    xid_rows,
)
from deploy.dashboards.writing import choice, dashboard
from pipeline.model import NS, WINDOW_NS

CHOSEN = 'namespace=~"$namespace",pod=~"$pod"'
KEY = "UUID, GPU_I_ID, GPU_CI_ID"
NAME = "{{namespace}}/{{pod}}"
CONTAINER = f"{NAME}/{{{{container}}}} on GPU {{{{gpu}}}} {{{{GPU_I_ID}}}} of {{{{Hostname}}}}"

# Holders have one series per container, so that shared devices have several. A device is joined
# with all of its holders. They are aggregated first, because a node can have two podgpus for a
# short time.
DEVICES = (
    f"max by (namespace, pod, UUID, GPU_I_ID, GPU_CI_ID) (podgpu_device_holder_info{{{CHOSEN}}})"
)
BUSY = (
    f"(max by ({KEY}) (DCGM_FI_DEV_GPU_UTIL) "
    f'or 100 * max by ({KEY}) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{{GPU_I_ID!=""}}))'
)
BUSY_MEAN = (
    f"(max by ({KEY}) (avg_over_time(DCGM_FI_DEV_GPU_UTIL[$__range])) "
    f"or 100 * max by ({KEY}) "
    f'(avg_over_time(DCGM_FI_PROF_GR_ENGINE_ACTIVE{{GPU_I_ID!=""}}[$__range])))'
)


def held(reading: str, holders: str = DEVICES) -> str:
    """Return a query that joins a device's reading with each of its holders."""
    return f"{reading} * on ({KEY}) group_right () {holders}"


def grown(quantity: str) -> str:
    """Return the growth of a quantity of the chosen containers within the time range."""
    return f"increase(podgpu_container_{quantity}_total{{{CHOSEN}}}[$__range])"


def recent(quantity: str) -> str:
    """Return the growth of a quantity in five minutes, per second of the device's account.

    Time without an account counts in neither.
    """
    grew = f"max by ({OF_HOLDER}) (rate(podgpu_container_{quantity}_total{{{CHOSEN}}}[5m]))"
    return _part_of_account(grew, "rate")


def recent_error() -> str:
    """Return by how much the busy part of five minutes may be wrong; 0 for a sole user.

    This is `split_error_ns` of the growth in this time.
    """
    contested, switching = (
        f"max by ({OF_HOLDER}) (increase(podgpu_container_{name}_total{{{CHOSEN}}}[5m]))"
        for name in ("contested_busy_seconds", "switching_seconds")
    )
    window = f"{WINDOW_NS / NS:g}"
    return _part_of_account(f"(2 * sqrt({window} * {contested}) + {switching})", "increase")


def _part_of_account(value: str, growth: str) -> str:
    time = f"max by ({KEY}) ({growth}(podgpu_device_accounted_seconds_total[5m]))"
    return f"{value} / on ({KEY}) group_left () ({time} > 0)"


NOW = (
    Panel(
        "stat",
        "Devices held",
        "GPUs and MIG instances that the chosen pods hold; a shared one counts once.",
        (Target(f"count(count by ({KEY}) (podgpu_device_holder_info{{{CHOSEN}}}))"),),
        width=4,
        height=5,
        none="none known",
        trend=True,
    ),
    Panel(
        "stat",
        "Pods",
        "Pods that hold a device.",
        (Target(f"count(count by (namespace, pod) (podgpu_device_holder_info{{{CHOSEN}}}))"),),
        width=4,
        height=5,
        none="none known",
        trend=True,
    ),
    Panel(
        "stat",
        "Utilisation",
        "Mean over the devices held: time in which a kernel ran, or for MIG instances, time in "
        "which the graphics engine was busy.",
        (Target(f"avg(max by ({KEY}) ({held(BUSY)}))"),),
        unit="percent",
        width=4,
        height=5,
        most=100,
        steps=LOW_PER_CENT_IS_BAD,
        trend=True,
    ),
    Panel(
        "stat",
        "Shared devices",
        "Devices held that other pods hold too.",
        (
            Target(
                f"sum((count by ({KEY}) (max by (namespace, pod, {KEY}) "
                "(podgpu_device_holder_info)) "
                f"and on ({KEY}) {DEVICES}) > bool 1)"
            ),
        ),
        width=4,
        height=5,
        none="none known",
        trend=True,
    ),
    Panel(
        "stat",
        "Power",
        "Energy of the chosen pods per second, also on shared GPUs. The split of a shared GPU is a "
        "model, see docs/usage.md.",
        (Target(f"sum({of_containers('energy_joules', CHOSEN)})"),),
        unit="watt",
        width=4,
        height=5,
        trend=True,
        interval="1m",
    ),
    Panel(
        "stat",
        "Conflicts",
        "Devices with conflicting claims: it is unknown which pod holds them.",
        (
            Target(
                f"count((max by ({KEY}) (podgpu_attribution_conflicts) and on ({KEY}) {DEVICES}) "
                "> 0)"
            ),
        ),
        width=4,
        height=5,
        steps=((None, "green"), (1, "red")),
        none="none",
        trend=True,
    ),
)

TEAMS = (
    Panel(
        "timeseries",
        "Devices held by namespace",
        "A device that pods of several namespaces share counts for each.",
        (
            Target(
                "count by (namespace) (max by (namespace, UUID, GPU_I_ID, GPU_CI_ID) "
                f"(podgpu_device_holder_info{{{CHOSEN}}}))",
                "{{namespace}}",
            ),
        ),
        stacked=True,
    ),
    Panel(
        "timeseries",
        "Utilisation by namespace",
        "Mean over the devices that each namespace holds.",
        (Target(f"avg by (namespace) ({held(BUSY)})", "{{namespace}}"),),
        unit="percent",
        most=100,
        link=NAMESPACE_BY_NAME,
    ),
    Panel(
        "bargauge",
        "Held time that was busy, by namespace",
        "Busy time within the time range as a part of held time, of containers on their devices. "
        "It is more than 100 % if a namespace used more than its share of shared devices.",
        (
            Target(
                f"sum by (namespace) ({grown('busy_seconds')}) "
                f"/ (sum by (namespace) ({grown('held_seconds')}) > 0)",
                "{{namespace}}",
            ),
        ),
        unit="percentunit",
        width=8,
        most=1,
        steps=LOW_IS_BAD,
        link=NAMESPACE_BY_NAME,
    ),
    Panel(
        "bargauge",
        "Energy by namespace",
        "Within the time range, also of shared GPUs, of which the split is a model.",
        (
            Target(
                f"sum by (namespace) ({grown('energy_joules')}) / 3600000",
                "{{namespace}}",
            ),
        ),
        unit="kwatth",
        width=8,
        link=NAMESPACE_BY_NAME,
    ),
    Panel(
        "bargauge",
        "Idle devices by namespace",
        "Devices held that were busy for less than 5 % of the time range, on average.",
        (Target(f"count by (namespace) ({held(BUSY_MEAN)} < 5)", "{{namespace}}"),),
        width=8,
        none="none",
        steps=((None, "orange"),),
        link=NAMESPACE_BY_NAME,
    ),
)

PODS_ROW = (
    Panel(
        "timeseries",
        "Busy time by container",
        "Part of the time for which the processes of each container kept a device busy, also of "
        "devices that several containers share. Over less than a minute the parts are inexact.",
        (Target(of_containers("busy_seconds", CHOSEN), CONTAINER),),
        unit="percentunit",
        interval="1m",
    ),
    Panel(
        "timeseries",
        "Memory by container",
        "Memory of the processes of each container on each device.",
        (
            Target(
                f"max by ({OF_HOLDER}) (podgpu_container_memory_used_bytes{{{CHOSEN}}})", CONTAINER
            ),
        ),
        unit="bytes",
        stacked=True,
    ),
    Panel(
        "timeseries",
        "Power by container",
        "Energy of each container per second. On shared GPUs the split is a model, see "
        "docs/usage.md.",
        (Target(of_containers("energy_joules", CHOSEN), CONTAINER),),
        unit="watt",
        stacked=True,
        interval="1m",
    ),
    Panel(
        "timeseries",
        "Utilisation of the devices",
        "Mean over the devices that each pod holds. A shared device counts with its whole "
        "utilisation, by any pod.",
        (Target(f"avg by (namespace, pod) ({held(BUSY)})", NAME),),
        unit="percent",
        most=100,
    ),
    Panel(
        "timeseries",
        "Tensor cores",
        "Fraction of time in which the tensor pipes were busy, mean over each pod's devices. "
        "Hopper and newer.",
        (
            Target(
                "avg by (namespace, pod) ("
                f"{held(f'max by ({KEY}) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)')})",
                NAME,
            ),
        ),
        unit="percentunit",
        most=1,
    ),
    Panel(
        "table",
        "Containers on devices",
        "Each container on each device within the last five minutes: its share of the device, the "
        "part of the device that it kept busy, by how much this may be wrong because the device is "
        "shared, the busy part of its share (more than 100 % if it used more), its memory and mean "
        "power. The last column is the device as a whole, of which all of its containers have a "
        "part.",
        (
            Target(recent("held_seconds")),
            Target(recent("busy_seconds")),
            Target(recent_error()),
            Target(f"{recent('busy_seconds')} / ({recent('held_seconds')} > 0)"),
            Target(f"max by ({OF_HOLDER}) (podgpu_container_memory_used_bytes{{{CHOSEN}}})"),
            Target(recent("energy_joules")),
            Target(f"{BUSY} * on ({KEY}) group_right () ({recent('held_seconds')} >= bool 0)"),
        ),
        width=24,
        height=10,
        columns={
            "namespace": "Namespace",
            "pod": "Pod",
            "container": "Container",
            "Hostname": "Node",
            "gpu": "GPU",
            "GPU_I_PROFILE": "MIG profile",
            "GPU_I_ID": "GPU instance",
            "Value #A": "Share",
            "Value #B": "Busy",
            "Value #C": "Busy, plus or minus",
            "Value #D": "Busy part of its share",
            "Value #E": "Memory",
            "Value #F": "Power",
            "Value #G": "Whole device busy",
        },
        cells={
            "Namespace": NAMESPACE,
            "Pod": POD,
            "Node": NODE,
            "GPU": GPU,
            "Share": Cell("percentunit", decimals=0),
            "Busy": Cell("percentunit", ((None, "green"),), "gauge", 1),
            "Busy, plus or minus": Cell("percentunit", decimals=1),
            "Busy part of its share": Cell("percentunit", LOW_IS_BAD, "background", decimals=0),
            "Memory": Cell("bytes"),
            "Power": Cell("watt"),
            "Whole device busy": Cell("percent"),
        },
        sort="Busy",
        none="",
    ),
    Panel(
        "table",
        "Workloads",
        "The workload of each pod, as reported by the API server (source pods).",
        (
            Target(
                "max by (namespace, pod, owner_kind, owner_name, qos_class, phase, Hostname) "
                f"(podgpu_pod_info{{{CHOSEN}}})"
            ),
        ),
        columns={
            "namespace": "Namespace",
            "pod": "Pod",
            "owner_kind": "Workload",
            "owner_name": "Workload name",
            "phase": "Phase",
            "qos_class": "Class",
            "Hostname": "Node",
        },
        cells={
            "Namespace": NAMESPACE,
            "Pod": POD,
            "Node": NODE,
            "Phase": Cell(
                look="text",
                words={
                    "Running": ("Running", "green"),
                    "Pending": ("Pending", "orange"),
                    "Failed": ("Failed", "red"),
                },
            ),
        },
        none="",
    ),
    Panel(
        "table",
        "XID errors by container",
        "The last of each code on each GPU within the time shown, of which podgpu counted an error "
        "for the container: it held or used the GPU at that time. An affected container is not "
        "necessarily the cause.",
        (Target(xid_rows(CHOSEN, of_pods=True)),),
        columns=XID_COLUMNS,
        cells=XID_CELLS,
        sort="Last",
        none="",
    ),
)

PODS = dashboard(
    "podgpu-pods",
    "podgpu: pods and teams",
    "The devices of pods and namespaces, and how well they are used.",
    [
        choice(
            "namespace",
            "Namespace",
            "label_values(podgpu_device_holder_info, namespace)",
            everything=".+",
        ),
        choice(
            "pod",
            "Pod",
            'label_values(podgpu_device_holder_info{namespace=~"$namespace"}, pod)',
            everything=".+",
        ),
    ],
    [("Now", NOW), ("Namespaces", TEAMS), ("Pods", PODS_ROW)],
    annotations=xid_events(CHOSEN, of_pods=True),
)
