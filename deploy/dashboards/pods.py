"""Pods and teams: what was given to them, and what they make of it."""

from deploy.dashboards.panels import Panel, Target
from deploy.dashboards.writing import choice, dashboard

CHOSEN = 'namespace=~"$namespace",pod=~"$pod"'
KEY = "UUID, GPU_I_ID, GPU_CI_ID"
POD = "{{namespace}}/{{pod}}"

# Who holds a device is one series for each container, so that shared devices have several. A device
# is joined with all of its holders; put together first, for a while has two podgpus on a node.
HOLDERS = (
    "max by (namespace, pod, container, Hostname, gpu, UUID, GPU_I_PROFILE, GPU_I_ID, GPU_CI_ID) "
    f"(podgpu_device_holder_info{{{CHOSEN}}})"
)
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
    """Join a device's reading with each of its holders."""
    return f"{reading} * on ({KEY}) group_right () {holders}"


NOW = (
    Panel(
        "stat",
        "Devices held",
        "GPUs and MIG instances that the chosen pods hold; a shared one counts once.",
        (Target(f"count(count by ({KEY}) (podgpu_device_holder_info{{{CHOSEN}}}))"),),
        width=4,
        height=5,
        none="none known",
    ),
    Panel(
        "stat",
        "Pods",
        "Pods that hold a device.",
        (Target(f"count(count by (namespace, pod) (podgpu_device_holder_info{{{CHOSEN}}}))"),),
        width=4,
        height=5,
        none="none known",
    ),
    Panel(
        "stat",
        "Utilisation",
        "Mean over the devices held: part of time in which some kernel ran, of MIG instances that "
        "in which "
        "the graphics engine was busy.",
        (Target(f"avg(max by ({KEY}) ({held(BUSY)}))"),),
        unit="percent",
        width=4,
        height=5,
        most=100,
    ),
    Panel(
        "stat",
        "Shared devices",
        "Devices held that other pods hold as well.",
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
    ),
    Panel(
        "stat",
        "Power",
        "What the GPUs draw that one pod alone holds.",
        (Target(f"sum(max by (UUID) (DCGM_FI_DEV_POWER_USAGE{{{CHOSEN}}}))"),),
        unit="watt",
        width=4,
        height=5,
    ),
    Panel(
        "stat",
        "Conflicts",
        "Devices on which claims contradict one another: whose they are can't be told.",
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
    ),
)

TEAMS = (
    Panel(
        "timeseries",
        "Devices held by namespace",
        "A device that pods of several namespaces share counts in each.",
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
        (
            Target(
                f"avg by (namespace) ({held(BUSY)})",
                "{{namespace}}",
            ),
        ),
        unit="percent",
        most=100,
    ),
    Panel(
        "bargauge",
        "Energy by namespace",
        "Within the time shown, of GPUs that one pod alone held. What shared GPUs draw is "
        "nobody's.",
        (
            Target(
                "sum by (namespace) (increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
                f"{{{CHOSEN}}}[$__range])) / 3600000000",
                "{{namespace}}",
            ),
        ),
        unit="kwatth",
    ),
    Panel(
        "bargauge",
        "Idle devices by namespace",
        "Devices held that were busy for less than 5 % of the time shown, on average.",
        (Target(f"count by (namespace) ({held(BUSY_MEAN)} < 5)", "{{namespace}}"),),
        none="none",
    ),
)

PODS_ROW = (
    Panel(
        "timeseries",
        "Utilisation",
        "Mean over the devices that each pod holds. Of a shared device it is the whole device's, "
        "whoever "
        "used it.",
        (Target(f"avg by (namespace, pod) ({held(BUSY)})", POD),),
        unit="percent",
        most=100,
    ),
    Panel(
        "timeseries",
        "Tensor cores",
        "Part of time in which the tensor pipes were busy, as a mean over each pod's devices. "
        "Hopper "
        "and newer.",
        (
            Target(
                "avg by (namespace, pod) ("
                f"{held(f'max by ({KEY}) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)')})",
                POD,
            ),
        ),
        unit="percentunit",
        most=1,
    ),
    Panel(
        "timeseries",
        "Memory in use",
        "Allocated memory of the devices that each pod holds; of a shared device all of it.",
        (
            Target(
                f"sum by (namespace, pod) ({held(f'max by ({KEY}) (DCGM_FI_DEV_FB_USED)')})",
                POD,
            ),
        ),
        unit="mbytes",
    ),
    Panel(
        "timeseries",
        "Power",
        "Of the GPUs that a pod alone holds.",
        (
            Target(
                "sum by (namespace, pod) (max by (namespace, pod, UUID) "
                f"(DCGM_FI_DEV_POWER_USAGE{{{CHOSEN}}}))",
                POD,
            ),
        ),
        unit="watt",
    ),
    Panel(
        "table",
        "What each holds",
        "Each container and device: how busy the device is and was on average within the time "
        "shown, and "
        "its memory in use.",
        (
            Target(held(BUSY, HOLDERS)),
            Target(held(BUSY_MEAN, HOLDERS)),
            Target(held(f"max by ({KEY}) (DCGM_FI_DEV_FB_USED)", HOLDERS)),
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
            "Value #A": "Busy now",
            "Value #B": "Busy on average",
            "Value #C": "Memory in use",
        },
        units={"Busy now": "percent", "Busy on average": "percent", "Memory in use": "mbytes"},
        none="",
    ),
    Panel(
        "table",
        "Owners",
        "What each pod belongs to, as the API server tells (source pods).",
        (
            Target(
                "max by (namespace, pod, owner_kind, owner_name, qos_class, phase, Hostname) "
                f"(podgpu_pod_info{{{CHOSEN}}})"
            ),
        ),
        columns={
            "namespace": "Namespace",
            "pod": "Pod",
            "owner_kind": "Owner",
            "owner_name": "Owner's name",
            "phase": "Phase",
            "qos_class": "Class",
            "Hostname": "Node",
        },
        none="",
    ),
    Panel(
        "table",
        "XID errors",
        "Errors on GPUs that a pod alone held at that time or holds now, since podgpu started.",
        (
            Target(
                "max by (namespace, pod, Hostname, gpu, xid) "
                f"(podgpu_xid_errors_total{{{CHOSEN}}}) > 0"
            ),
        ),
        columns={
            "namespace": "Namespace",
            "pod": "Pod",
            "Hostname": "Node",
            "gpu": "GPU",
            "xid": "XID",
            "Value": "Errors",
        },
        none="",
    ),
)

PODS = dashboard(
    "podgpu-pods",
    "podgpu: pods and teams",
    "What pods and namespaces hold, and how well they use it.",
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
)
