"""The dashboard of pods and teams: the devices that they hold, and how well they use them."""

from deploy.dashboards.panels import Panel, Target
from deploy.dashboards.writing import choice, dashboard

CHOSEN = 'namespace=~"$namespace",pod=~"$pod"'
KEY = "UUID, GPU_I_ID, GPU_CI_ID"
POD = "{{namespace}}/{{pod}}"

# Holders have one series per container, so that shared devices have several. A device is joined
# with all of its holders. They are aggregated first, because a node can have two podgpus for a
# short time.
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
    """Return a query that joins a device's reading with each of its holders."""
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
        "Mean over the devices held: time in which a kernel ran, or for MIG instances, time in "
        "which the graphics engine was busy.",
        (Target(f"avg(max by ({KEY}) ({held(BUSY)}))"),),
        unit="percent",
        width=4,
        height=5,
        most=100,
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
    ),
    Panel(
        "stat",
        "Power",
        "Power draw of the GPUs that only one pod holds.",
        (Target(f"sum(max by (UUID) (DCGM_FI_DEV_POWER_USAGE{{{CHOSEN}}}))"),),
        unit="watt",
        width=4,
        height=5,
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
        "Within the time range, of GPUs that only one pod held. Energy of shared GPUs is not "
        "attributed.",
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
        "Devices held that were busy for less than 5 % of the time range, on average.",
        (Target(f"count by (namespace) ({held(BUSY_MEAN)} < 5)", "{{namespace}}"),),
        none="none",
    ),
)

PODS_ROW = (
    Panel(
        "timeseries",
        "Utilisation",
        "Mean over the devices that each pod holds. A shared device counts with its whole "
        "utilisation, by any pod.",
        (Target(f"avg by (namespace, pod) ({held(BUSY)})", POD),),
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
                POD,
            ),
        ),
        unit="percentunit",
        most=1,
    ),
    Panel(
        "timeseries",
        "Memory in use",
        "Allocated memory of the devices that each pod holds; a shared device counts as a whole.",
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
        "Power draw of the GPUs that only this pod holds.",
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
        "Devices by container",
        "Each container and device: how busy the device is now and was on average within the time "
        "range, and its memory in use.",
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
        none="",
    ),
    Panel(
        "table",
        "XID errors",
        "Errors since podgpu started, on GPUs that only one pod held at that time or holds now.",
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
)
