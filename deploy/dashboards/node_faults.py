"""Rows of the dashboard of one node: faults, and podgpu itself."""

from deploy.dashboards.panels import Cell, Panel, Target
from deploy.dashboards.queries import XID_CELLS, XID_COLUMNS, xid_rows

S = 'Hostname="$node",gpu=~"$gpu"'
OWN = 'instance=~"$instance"'
_UP = Cell(look="background", words={"0": ("down", "red"), "1": ("up", "green")})
_LATE = ((None, "green"), (60, "yellow"), (300, "red"))
_ANY = ((None, "transparent"), (1, "red"))


def by_gpu(metric: str) -> str:
    """Return a query with one value per GPU of the node."""
    return f"max by (gpu) ({metric}{{{S}}})"


FAULTS = (
    Panel(
        "table",
        "XID errors by container",
        "The last of each code on each GPU within the time shown, and each container that held or "
        "used the GPU then, with the action that NVIDIA advises.",
        (Target(xid_rows(S)),),
        width=24,
        height=6,
        columns={title: name for title, name in XID_COLUMNS.items() if title != "Hostname"},
        cells={
            **{title: cell for title, cell in XID_CELLS.items() if title not in ("Node", "GPU")}
        },
        sort="Last",
        none="",
    ),
    Panel(
        "table",
        "Memory errors",
        "ECC errors since the driver was loaded, corrected and uncorrected; replaced rows; and "
        "whether a replacement needs a reset or has failed.",
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
        width=24,
        cells={
            "Uncorrected": Cell(look="background", steps=_ANY),
            "Pending": Cell(
                look="background",
                words={"0": ("no", "transparent"), "1": ("reset needed", "orange")},
            ),
            "Failed": Cell(
                look="background", words={"0": ("no", "transparent"), "1": ("failed", "red")}
            ),
        },
    ),
)

ITSELF = (
    Panel(
        "table",
        "Sources",
        "Whether each works, and the time since it last reported and since it last confirmed "
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
        cells={
            "Up": _UP,
            "Reported": Cell("s", _LATE, "text"),
            "Holders confirmed": Cell("s", _LATE, "text"),
        },
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
