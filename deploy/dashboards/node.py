"""One node: its GPUs, who holds them, and podgpu on it."""

from deploy.dashboards.panels import Panel, Target
from deploy.dashboards.writing import choice, dashboard

# Readings carry their holder's labels: put together by GPU, a line goes on when that changes.
S = 'Hostname="$node",gpu=~"$gpu"'
DEVICE = "gpu, GPU_I_PROFILE, GPU_I_ID, GPU_CI_ID"
GPU = "GPU {{gpu}}"
INSTANCE = "GPU {{gpu}} {{GPU_I_PROFILE}} {{GPU_I_ID}}"
OWN = 'instance=~"$instance"'
WHOLE = ',GPU_I_ID=""'
GOOD_OR_BAD = ((None, "green"), (1, "red"))


def by_gpu(metric: str, more: str = "") -> str:
    """One value for each GPU of the node."""
    return f"max by (gpu) ({metric}{{{S}{more}}})"


def pace(counter: str) -> str:
    """By how much a counter of each GPU of the node grows in a second."""
    return f"max by (gpu) (rate({counter}{{{S}}}[$__rate_interval]))"


def by_device(metric: str) -> str:
    """One value for each GPU and each MIG instance of the node."""
    return f"max by ({DEVICE}) ({metric}{{{S}}})"


NOW = (
    Panel(
        "stat",
        "GPUs",
        "GPUs that answer the driver's calls, and all that podgpu has seen since it started.",
        (
            Target(f'max(podgpu_gpus{{{OWN},state="present"}})', "answer"),
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
        "Mean over the GPUs of the part of time in which some kernel ran. GPUs with MIG have none.",
        (Target(f"avg({by_gpu('DCGM_FI_DEV_GPU_UTIL')})"),),
        unit="percent",
        width=4,
        height=5,
        most=100,
    ),
    Panel(
        "stat",
        "Memory in use",
        "Allocated device memory, of all that there is.",
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
        "What the boards draw together.",
        (Target(f"sum({by_gpu('DCGM_FI_DEV_POWER_USAGE')})"),),
        unit="watt",
        width=4,
        height=5,
    ),
    Panel(
        "stat",
        "XID errors",
        "Errors that the driver has reported since podgpu started, of all codes.",
        (Target(f"sum(max by (gpu, xid) (podgpu_xid_errors_total{{{S}}}))"),),
        width=4,
        height=5,
        steps=GOOD_OR_BAD,
    ),
    Panel(
        "table",
        "Who holds what",
        "Each container that holds a device, by whose word, on what evidence, and since when as "
        "far as "
        "is known.",
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
        "Part of the driver's sample period in which some kernel ran, however small. It is high "
        "on a GPU "
        "that does little, too: see the engines beside it.",
        (Target(by_gpu("DCGM_FI_DEV_GPU_UTIL"), GPU),),
        unit="percent",
        most=100,
    ),
    Panel(
        "timeseries",
        "Graphics engine",
        "Part of time in which the engine was busy; of MIG instances too. Hopper and newer.",
        (Target(by_device("DCGM_FI_PROF_GR_ENGINE_ACTIVE"), INSTANCE),),
        unit="percentunit",
        most=1,
    ),
    Panel(
        "timeseries",
        "Tensor cores",
        "Part of time in which the tensor pipes were busy. Training in half precision that uses "
        "the card "
        "well reaches 0.4 and more. Hopper and newer.",
        (Target(by_device("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"), INSTANCE),),
        unit="percentunit",
        most=1,
    ),
    Panel(
        "timeseries",
        "Memory bandwidth",
        "Part of time in which the device memory moved data. Hopper and newer.",
        (Target(by_device("DCGM_FI_PROF_DRAM_ACTIVE"), INSTANCE),),
        unit="percentunit",
        most=1,
    ),
    Panel(
        "timeseries",
        "Memory in use",
        "Allocated memory of GPUs and MIG instances, without what the driver keeps for itself.",
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
        "What the whole board draws.",
        (Target(by_gpu("DCGM_FI_DEV_POWER_USAGE"), GPU),),
        unit="watt",
    ),
    Panel(
        "timeseries",
        "Temperature",
        "Of the GPU's core and of its memory, where the card tells it.",
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
        "Clocks held down",
        "When and why. The power limit is nothing unusual under full load; heat and the power "
        "brake are "
        "faults. Idle GPUs and clocks that somebody set are left out.",
        (
            Target(
                "max by (gpu, reason) (podgpu_clock_throttle_active{"
                f'{S},reason!~"gpu_idle|clocks_setting|display_clocks"}})',
                "GPU {{gpu}} {{reason}}",
            ),
        ),
        words={"0": ("no", "transparent"), "1": ("held down", "orange")},
    ),
    Panel(
        "bargauge",
        "Energy",
        "What each board has drawn within the time shown.",
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
        "Data sent and received over PCIe, headers included. Hopper and newer; not with a counters "
        "list that calls DCGM_FI_PROF_PCIE_TX_BYTES a counter, nor with counters.own off.",
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
        "Load of encoders and decoders.",
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
        "How often the driver has reported each since podgpu started, and when last. "
        "docs/alerts.md "
        "says which are a program's fault and which the hardware's.",
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
        "Errors since the driver was loaded that ECC corrected and that it couldn't, rows "
        "replaced, "
        "and whether a replacement waits for a reset (1) or has failed (1).",
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
        "Whether each does its work (1), and how long ago it last reported and last stood by what "
        "it says "
        "of holders.",
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
            "Value #C": "Stood by holders",
        },
        units={"Reported": "s", "Stood by holders": "s"},
    ),
    Panel(
        "timeseries",
        "Sinks",
        "Readings or points that each sink has handed on, and that were lost.",
        (
            Target(
                f"sum by (sink) (rate(podgpu_sink_emitted_total{{{OWN}}}[$__rate_interval]))",
                "{{sink}}",
            ),
            Target(
                f"sum by (sink) (rate(podgpu_sink_dropped_total{{{OWN}}}[$__rate_interval]))",
                "{{sink}} lost",
            ),
        ),
        unit="cps",
        width=8,
    ),
    Panel(
        "timeseries",
        "A round of readings",
        "How long it takes on average, from the first call to the driver to the last.",
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
    "The GPUs of one node: what they do, who holds them, what is wrong with them.",
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
