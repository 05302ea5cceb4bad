"""The dashboard of one node: its GPUs, their holders, and podgpu itself."""

from deploy.dashboards.panels import Panel, Target
from deploy.dashboards.writing import choice, dashboard

# Readings have their holder's labels. Aggregated by GPU, a line continues when the holder changes.
S = 'Hostname="$node",gpu=~"$gpu"'
DEVICE = "gpu, GPU_I_PROFILE, GPU_I_ID, GPU_CI_ID"
GPU = "GPU {{gpu}}"
INSTANCE = "GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
OWN = 'instance=~"$instance"'
WHOLE = ',GPU_I_ID=""'
GOOD_OR_BAD = ((None, "green"), (1, "red"))


def by_gpu(metric: str, more: str = "") -> str:
    """Return a query with one value per GPU of the node."""
    return f"max by (gpu) ({metric}{{{S}{more}}})"


def pace(counter: str) -> str:
    """Return a query for the increase of a counter per second, per GPU of the node."""
    return f"max by (gpu) (rate({counter}{{{S}}}[$__rate_interval]))"


def by_device(metric: str) -> str:
    """Return a query with one value per GPU and MIG instance of the node."""
    return f"max by ({DEVICE}) ({metric}{{{S}}})"


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
    ),
    Panel(
        "stat",
        "Power",
        "Power draw of all boards together.",
        (Target(f"sum({by_gpu('DCGM_FI_DEV_POWER_USAGE')})"),),
        unit="watt",
        width=4,
        height=5,
    ),
    Panel(
        "stat",
        "XID errors",
        "Errors of all codes that the driver has reported since podgpu started.",
        (Target(f"sum(max by (gpu, xid) (podgpu_xid_errors_total{{{S}}}))"),),
        width=4,
        height=5,
        steps=GOOD_OR_BAD,
    ),
    Panel(
        "table",
        "Holders",
        "Each container that holds a device, with the source and the evidence, and since when if "
        "this is known.",
        (
            Target(
                "max by (gpu, GPU_I_PROFILE, GPU_I_ID, namespace, pod, container, source, "
                "evidence) "
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
            "source": "Source",
            "evidence": "Evidence",
            "Value": "Since",
        },
        units={"Since": "dateTimeFromNow"},
        none="",
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
        "Of the GPU's core and of its memory, if the card reports it.",
        (
            Target(by_gpu("DCGM_FI_DEV_GPU_TEMP"), GPU),
            Target(by_gpu("DCGM_FI_DEV_MEMORY_TEMP"), f"{GPU} memory"),
        ),
        unit="celsius",
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

FAULTS = (
    Panel(
        "table",
        "XID errors",
        "How many of each code the driver has reported since podgpu started, and the last time. "
        "docs/alerts.md lists which are caused by programs and which by the hardware.",
        (
            Target(f"max by (gpu, xid) (podgpu_xid_errors_total{{{S}}}) > 0"),
            Target(f"max by (gpu, xid) (podgpu_xid_last_seen_timestamp_seconds{{{S}}}) * 1000"),
        ),
        columns={"gpu": "GPU", "xid": "XID", "Value #A": "Errors", "Value #B": "Last"},
        units={"Last": "dateTimeFromNow"},
        none="",
    ),
    Panel(
        "table",
        "Memory errors",
        "ECC errors since the driver was loaded, corrected and uncorrected; replaced rows; and "
        "whether a replacement needs a reset (1) or has failed (1).",
        (
            Target(by_gpu("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL")),
            Target(by_gpu("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")),
            Target(by_gpu("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS")),
            Target(by_gpu("DCGM_FI_DEV_ROW_REMAP_PENDING")),
            Target(by_gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE")),
        ),
        columns={
            "gpu": "GPU",
            "Value #A": "Corrected",
            "Value #B": "Uncorrected",
            "Value #C": "Rows replaced",
            "Value #D": "Pending",
            "Value #E": "Failed",
        },
    ),
)

ITSELF = (
    Panel(
        "table",
        "Sources",
        "Whether each works (1), and the time since it last reported and since it last confirmed "
        "holders.",
        (
            Target(f"max by (source, kind) (podgpu_source_up{{{OWN}}})"),
            Target(f"min by (source, kind) (podgpu_source_age_seconds{{{OWN}}})"),
            Target(f"min by (source, kind) (podgpu_attribution_age_seconds{{{OWN}}})"),
        ),
        width=8,
        columns={
            "source": "Source",
            "kind": "Kind",
            "Value #A": "Up",
            "Value #B": "Reported",
            "Value #C": "Holders confirmed",
        },
        units={"Reported": "s", "Holders confirmed": "s"},
    ),
    Panel(
        "timeseries",
        "Sinks",
        "Readings or points that each sink has passed on, and that were dropped.",
        (
            Target(
                f"sum by (sink) (rate(podgpu_sink_emitted_total{{{OWN}}}[$__rate_interval]))",
                "{{sink}}",
            ),
            Target(
                f"sum by (sink) (rate(podgpu_sink_dropped_total{{{OWN}}}[$__rate_interval]))",
                "{{sink}} dropped",
            ),
        ),
        unit="cps",
        width=8,
    ),
    Panel(
        "timeseries",
        "Duration of a round of readings",
        "Mean time from the first call of the driver to the last.",
        (
            Target(
                f"rate(podgpu_sample_duration_seconds_sum{{{OWN}}}[$__rate_interval]) "
                f"/ rate(podgpu_sample_duration_seconds_count{{{OWN}}}[$__rate_interval])",
                "{{source}}",
            ),
        ),
        unit="s",
        width=8,
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
        ("Work", WORK),
        ("Power, heat and links", POWER),
        ("Faults", FAULTS),
        ("podgpu", ITSELF),
    ],
)
