"""The dashboard of one node: its GPUs, their holders, and podgpu itself."""

from deploy.dashboards.node_faults import FAULTS, ITSELF
from deploy.dashboards.panels import GOOD_OR_BAD, Cell, Panel, Target
from deploy.dashboards.queries import (
    FULL,
    HOT,
    LOW_PER_CENT_IS_BAD,
    NAMESPACE,
    POD,
    of_containers,
    of_devices,
    xid_events,
)
from deploy.dashboards.writing import choice, dashboard

# Readings have their holder's labels. Aggregated by GPU, a line continues when the holder changes.
S = 'Hostname="$node",gpu=~"$gpu"'
DEVICE = "gpu, GPU_I_PROFILE, GPU_I_ID, GPU_CI_ID"
GPU = "GPU {{gpu}}"
INSTANCE = "GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
OWN = 'instance=~"$instance"'
WHOLE = ',GPU_I_ID=""'
CONTAINER = "GPU {{gpu}} {{GPU_I_ID}} {{namespace}}/{{pod}}/{{container}} {{hpc_job}}"
UNATTRIBUTED = "GPU {{gpu}} {{GPU_I_ID}} unattributed"


def by_gpu(metric: str, more: str = "") -> str:
    """Return a query with one value per GPU of the node."""
    return f"max by (gpu) ({metric}{{{S}{more}}})"


def pace(counter: str) -> str:
    """Return a query for the increase of a counter per second, per GPU of the node."""
    return f"max by (gpu) (rate({counter}{{{S}}}[$__rate_interval]))"


def by_device(metric: str) -> str:
    """Return a query with one value per GPU and MIG instance of the node."""
    return f"max by ({DEVICE}) ({metric}{{{S}}})"


def by_container(metric: str) -> str:
    """Return a query with one value per container on each GPU and MIG instance of the node."""
    return f"max by (namespace, pod, container, hpc_job, owner_uid, {DEVICE}) ({metric}{{{S}}})"


NOW = (
    Panel(
        "stat",
        "GPUs",
        "GPUs that respond to the driver, and all that podgpu has seen since it started.",
        (
            Target(f'max(podgpu_gpus{{{OWN},state="present"}})', "respond"),
            Target(f'max(podgpu_gpus{{{OWN},state="expected"}})', "seen"),
        ),
        width=4,
        height=5,
        trend=True,
    ),
    Panel(
        "stat",
        "Devices held",
        "GPUs and MIG instances that at least one container holds.",
        (
            Target(
                f"count(count by (UUID, GPU_I_ID, GPU_CI_ID) (podgpu_device_holder_info{{{S}}}))"
            ),
        ),
        width=4,
        height=5,
        none="none known",
        trend=True,
    ),
    Panel(
        "stat",
        "Utilisation",
        "Mean over the GPUs of the time in which a kernel ran. GPUs with MIG have no value.",
        (Target(f"avg({by_gpu('DCGM_FI_DEV_GPU_UTIL')})"),),
        unit="percent",
        width=4,
        height=5,
        most=100,
        trend=True,
        steps=LOW_PER_CENT_IS_BAD,
    ),
    Panel(
        "stat",
        "Memory in use",
        "Allocated device memory, as a fraction of all.",
        (
            Target(
                f"sum({by_gpu('DCGM_FI_DEV_FB_USED', WHOLE)}) "
                f"/ sum({by_gpu('DCGM_FI_DEV_FB_TOTAL', WHOLE)})"
            ),
        ),
        unit="percentunit",
        width=4,
        height=5,
        most=1,
        trend=True,
        steps=FULL,
    ),
    Panel(
        "stat",
        "Power",
        "Power draw of all boards together.",
        (Target(f"sum({by_gpu('DCGM_FI_DEV_POWER_USAGE')})"),),
        unit="watt",
        width=4,
        height=5,
        trend=True,
    ),
    Panel(
        "stat",
        "XID errors",
        "Errors of all codes that the driver has reported since podgpu started.",
        (Target(f"sum(max by (gpu, xid) (podgpu_xid_errors_total{{{S}}}))"),),
        width=4,
        height=5,
        steps=GOOD_OR_BAD,
        trend=True,
    ),
    Panel(
        "state-timeline",
        "GPUs up and down",
        "Whether each GPU responds. A GPU that has fallen off the bus is down.",
        (Target(by_gpu("podgpu_gpu_up"), GPU),),
        width=24,
        height=6,
        words={"0": ("down", "red"), "1": ("up", "green")},
    ),
    Panel(
        "table",
        "Holders",
        "Each container or job that holds a device, with the source and the evidence, and since "
        "when if this is known.",
        (
            Target(
                "max by (gpu, GPU_I_PROFILE, GPU_I_ID, namespace, pod, container, hpc_job, "
                "owner_uid, source, evidence) "
                f"(podgpu_device_holder_since_timestamp_seconds{{{S}}}) * 1000"
            ),
        ),
        width=24,
        height=8,
        columns={
            "gpu": "GPU",
            "GPU_I_PROFILE": "MIG profile",
            "GPU_I_ID": "GPU instance",
            "namespace": "Namespace",
            "pod": "Pod",
            "container": "Container",
            "hpc_job": "Job",
            "source": "Source",
            "evidence": "Evidence",
            "Value": "Since",
        },
        cells={"Namespace": NAMESPACE, "Pod": POD, "Since": Cell("dateTimeFromNow")},
        none="",
    ),
)

CONTAINERS = (
    Panel(
        "timeseries",
        "Busy time by container",
        "Part of the time for which the processes of each container kept a device busy, also of "
        "devices that several containers share. What belongs to no known container is "
        "unattributed. Over less than a minute the parts are inexact.",
        (
            Target(of_containers("busy_seconds", S), CONTAINER),
            Target(of_devices("unattributed_busy_seconds", S), UNATTRIBUTED),
        ),
        unit="percentunit",
        stacked=True,
        interval="1m",
    ),
    Panel(
        "timeseries",
        "Memory by container",
        "Memory of the processes of each container, and memory that belongs to no known container "
        "and not to the driver.",
        (
            Target(by_container("podgpu_container_memory_used_bytes"), CONTAINER),
            Target(by_device("podgpu_device_unattributed_memory_used_bytes"), UNATTRIBUTED),
        ),
        unit="bytes",
        stacked=True,
    ),
    Panel(
        "timeseries",
        "Power by container",
        "Energy of each container per second. The sum is that of the GPU's energy counter; the "
        "split is a model, see docs/usage.md.",
        (
            Target(of_containers("energy_joules", S), CONTAINER),
            Target(of_devices("unattributed_energy_joules", S), UNATTRIBUTED),
        ),
        unit="watt",
        stacked=True,
        interval="1m",
    ),
    Panel(
        "timeseries",
        "Unattributed time",
        "Part of the time for which each device was busy with work of no known container, and for "
        "which it is unknown who held it. docs/usage.md says what podgpu needs to know both.",
        (
            Target(of_devices("unattributed_busy_seconds", S), f"{INSTANCE} busy"),
            Target(of_devices("unknown_held_seconds", S), f"{INSTANCE} unknown holder"),
        ),
        unit="percentunit",
        interval="1m",
    ),
)

WORK = (
    Panel(
        "timeseries",
        "Utilisation",
        "Part of the driver's sample period in which a kernel ran, however small. A GPU with "
        "little work can have a high value: see the following panels.",
        (Target(by_gpu("DCGM_FI_DEV_GPU_UTIL"), GPU),),
        unit="percent",
        most=100,
    ),
    Panel(
        "timeseries",
        "Graphics engine",
        "Fraction of time in which the engine was busy; also of MIG instances. Hopper and newer.",
        (Target(by_device("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), INSTANCE),),
        unit="percentunit",
        most=1,
    ),
    Panel(
        "timeseries",
        "Tensor cores",
        "Fraction of time in which the tensor pipes were busy. Efficient training in half "
        "precision reaches 0.4 and more. Hopper and newer.",
        (Target(by_device("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), INSTANCE),),
        unit="percentunit",
        most=1,
    ),
    Panel(
        "timeseries",
        "Memory bandwidth",
        "Fraction of time in which the device memory transferred data. Hopper and newer.",
        (Target(by_device("DCGM_FI_PROF_DRAM_ACTIVE"), INSTANCE),),
        unit="percentunit",
        most=1,
    ),
    Panel(
        "timeseries",
        "Memory in use",
        "Allocated memory of GPUs and MIG instances, without memory reserved by the driver.",
        (Target(by_device("DCGM_FI_DEV_FB_USED"), INSTANCE),),
        unit="mbytes",
    ),
    Panel(
        "timeseries",
        "Processes",
        "Processes with a context on a device.",
        (
            Target(
                f"sum by ({DEVICE}) (max by ({DEVICE}, UUID, kind) (podgpu_processes{{{S}}}))",
                INSTANCE,
            ),
        ),
    ),
)

POWER = (
    Panel(
        "timeseries",
        "Power",
        "Power draw of the whole board.",
        (Target(by_gpu("DCGM_FI_DEV_POWER_USAGE"), GPU),),
        unit="watt",
    ),
    Panel(
        "timeseries",
        "Temperature",
        "Of the GPU's core and of its memory, if the card reports it. Lines at 75 and 85 °C are "
        "the same for all cards; the limits of a card are fields of the group limits.",
        (
            Target(by_gpu("DCGM_FI_DEV_GPU_TEMP"), GPU),
            Target(by_gpu("DCGM_FI_DEV_MEMORY_TEMP"), f"{GPU} memory"),
        ),
        unit="celsius",
        steps=HOT,
        limits=True,
    ),
    Panel(
        "timeseries",
        "Clock",
        "Of the streaming multiprocessors.",
        (Target(f"{by_gpu('DCGM_FI_DEV_SM_CLOCK')} * 1000000", GPU),),
        unit="hertz",
    ),
    Panel(
        "state-timeline",
        "Clocks reduced",
        "When and why. Reduction by the power limit is normal under full load; heat and the power "
        "brake are faults. Idle GPUs and clocks set by a user are not shown.",
        (
            Target(
                "max by (gpu, reason) (podgpu_clock_throttle_active{"
                f'{S},reason!~"gpu_idle|clocks_setting|display_clocks"}})',
                "GPU {{gpu}} {{reason}}",
            ),
        ),
        words={"0": ("no", "transparent"), "1": ("reduced", "orange")},
    ),
    Panel(
        "bargauge",
        "Energy",
        "Energy that each board has drawn within the time range.",
        (
            Target(
                f"sum by (gpu) (increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{S}}}[$__range])) "
                "/ 3600000000",
                GPU,
            ),
        ),
        unit="kwatth",
    ),
    Panel(
        "timeseries",
        "PCIe",
        "Data sent and received over PCIe, headers included. Hopper and newer; empty with a "
        "counters list that has DCGM_FI_PROF_PCIE_TX_BYTES as a counter, or with counters.own off.",
        (
            Target(pace("podgpu_pcie_transmitted_bytes_total"), f"{GPU} sent"),
            Target(pace("podgpu_pcie_received_bytes_total"), f"{GPU} received"),
        ),
        unit="Bps",
    ),
    Panel(
        "timeseries",
        "NVLink",
        "Data sent and received over all NVLinks of a GPU.",
        (
            Target(pace("podgpu_nvlink_transmitted_bytes_total"), f"{GPU} sent"),
            Target(pace("podgpu_nvlink_received_bytes_total"), f"{GPU} received"),
        ),
        unit="Bps",
    ),
    Panel(
        "timeseries",
        "Video engines",
        "Utilisation of encoders and decoders.",
        (
            Target(by_gpu("DCGM_FI_DEV_ENC_UTIL"), f"{GPU} encoder"),
            Target(by_gpu("DCGM_FI_DEV_DEC_UTIL"), f"{GPU} decoder"),
        ),
        unit="percent",
        most=100,
    ),
)

NODE = dashboard(
    "podgpu-node",
    "podgpu: node",
    "The GPUs of one node: work, holders and faults.",
    [
        choice("node", "Node", "label_values(podgpu_device_info, Hostname)"),
        choice(
            "gpu", "GPU", 'label_values(podgpu_device_info{Hostname="$node"}, gpu)', everything=".*"
        ),
        choice(
            "instance",
            "Address",
            'label_values(podgpu_device_info{Hostname="$node"}, instance)',
            hidden=True,
        ),
    ],
    [
        ("Now", NOW),
        ("Faults", FAULTS),
        ("Containers", CONTAINERS),
        ("Work", WORK),
        ("Power, heat and links", POWER),
        ("podgpu", ITSELF),
    ],
    annotations=xid_events(S),
)
