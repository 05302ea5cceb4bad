"""The dashboard of usage over weeks: GPU hours, energy and cost, from recording rules."""

from deploy.dashboards.panels import Cell, Panel, Target
from deploy.dashboards.queries import COLOURS, LOW_IS_BAD, NAMESPACE, NAMESPACE_BY_NAME, NODE
from deploy.dashboards.recording import (
    STEP,
    STEP_SECONDS,
    container_rule,
    device_rule,
    workload_rule,
)
from deploy.dashboards.writing import choice, dashboard, number

OF_NODE = 'Hostname=~"$node"'
CHOSEN = f'{OF_NODE},namespace=~"$namespace"'
HOURS, KWH = "/ 3600", "/ 3600000"
RULES = "The rules podgpu:... of docs/dashboards.md must be loaded."
PRICED = Cell("locale", decimals=2)
PART = Cell("percentunit", LOW_IS_BAD, "gauge", 1)
HOUR = Cell("locale", decimals=1)
IDLE = Cell("locale", ((None, "text"), (1, "orange")), "text", decimals=1)


def over(rule: str, select: str, labels: str = "") -> str:
    """Return the sum of a recorded quantity over the time range, by labels."""
    by = f" by ({labels})" if labels else ""
    return f"sum{by} (sum_over_time({rule}{{{select}}}[$__range]))"


def used(quantity: str, labels: str = "") -> str:
    """Return the sum of a quantity of the chosen containers."""
    return over(workload_rule(quantity), CHOSEN, labels)


def of_nodes(quantity: str, labels: str = "") -> str:
    """Return the sum of a quantity of the devices of the chosen nodes."""
    return over(device_rule(quantity), OF_NODE, labels)


def cost(labels: str = "") -> str:
    """Return the price of the GPU hours and of the energy of the chosen containers."""
    hours = f"{used('gpu_seconds', labels)} {HOURS} * $gpu_hour_price"
    return f"{hours} + {used('energy_joules', labels)} {KWH} * $kwh_price"


def mean(rule: str, select: str, labels: str = "") -> str:
    """Return the mean number of devices that a recorded time is worth, between two points.

    The time between two points can have one evaluation of the rules more or less.
    """
    by = f" by ({labels})" if labels else ""
    recorded = f"count_over_time({device_rule('accounted_seconds')}{{{OF_NODE}}}[$__interval])"
    return (
        f"sum{by} (sum_over_time({rule}{{{select}}}[$__interval])) "
        f"/ (scalar(max({recorded})) * {STEP_SECONDS})"
    )


def held(labels: str = "") -> str:
    """Return the held time of the devices of the chosen nodes."""
    parts = [of_nodes(name, labels) for name in ("free_seconds", "unknown_held_seconds")]
    return f"({of_nodes('accounted_seconds', labels)} - {parts[0]} - {parts[1]})"


def box(title: str, description: str, query: str, unit: str = "locale", width: int = 3) -> Panel:
    """Return a box with one number."""
    return Panel(
        "stat", title, description, (Target(query),), unit=unit, width=width, height=4, decimals=1
    )


TOTALS = (
    box(
        "Held",
        "Device hours for which containers of all namespaces held devices of the chosen nodes, "
        "by their shares. A MIG instance counts as a device, as in `podgpu usage`.",
        f"{held()} {HOURS}",
    ),
    box(
        "Busy",
        "Device hours for which any process kept a device of the chosen nodes busy.",
        f"{of_nodes('busy_seconds')} {HOURS}",
    ),
    box(
        "Idle",
        "Held minus busy. It is below 0 if devices were busy without being held.",
        f"({held()} - {of_nodes('busy_seconds')}) {HOURS}",
    ),
    box(
        "Free",
        "Device hours for which devices were free.",
        f"{of_nodes('free_seconds')} {HOURS}",
    ),
    box(
        "Unknown",
        "Device hours for which it is unknown who held a device. They are in no other number here.",
        f"{of_nodes('unknown_held_seconds')} {HOURS}",
    ),
    box(
        "Unattributed",
        "Device hours for which devices were busy with work of no known container. docs/usage.md "
        "says what podgpu needs to see the containers of processes.",
        f"{of_nodes('unattributed_busy_seconds')} {HOURS}",
    ),
    box(
        "Cost",
        "Held GPU hours and energy of the chosen namespaces, at the prices above. A MIG instance "
        "costs a part of a GPU, by its compute slices.",
        cost(),
    ),
    Panel(
        "stat",
        "Recorded",
        "Part of the time range for which there are recorded values. What is missing is in no "
        f"number of this dashboard. {RULES}",
        (
            Target(
                f"max(count_over_time({device_rule('accounted_seconds')}{{{OF_NODE}}}[$__range]))"
                f" * {STEP_SECONDS} / $__range_s"
            ),
        ),
        unit="percentunit",
        width=3,
        height=4,
        steps=((None, "red"), (0.5, "orange"), (0.95, "green")),
        none="no rules",
    ),
)

TIME = (
    Panel(
        "timeseries",
        "Devices busy, idle and free",
        "Mean number of devices in each state. Busy is all busy time, unattributed work included.",
        (
            Target(mean(device_rule("busy_seconds"), OF_NODE), "busy"),
            Target(
                "clamp_min("
                f"{mean(device_rule('accounted_seconds'), OF_NODE)}"
                f" - {mean(device_rule('free_seconds'), OF_NODE)}"
                f" - {mean(device_rule('unknown_held_seconds'), OF_NODE)}"
                f" - {mean(device_rule('busy_seconds'), OF_NODE)}, 0)",
                "idle",
            ),
            Target(mean(device_rule("free_seconds"), OF_NODE), "free"),
            Target(mean(device_rule("unknown_held_seconds"), OF_NODE), "unknown"),
        ),
        stacked=True,
        colours={state: COLOURS[state] for state in ("busy", "idle", "free", "unknown")},
        interval=STEP,
    ),
    Panel(
        "timeseries",
        "Devices held by namespace",
        "Mean number of devices, by shares: half a device counts as 0.5.",
        (
            Target(
                mean(workload_rule("held_seconds"), CHOSEN, "namespace"),
                "{{namespace}}",
            ),
        ),
        stacked=True,
        interval=STEP,
        link=NAMESPACE_BY_NAME,
    ),
)


def table(title: str, description: str, labels: dict[str, str], cells: dict[str, Cell]) -> Panel:
    """Return a table of the usage of containers, by labels."""
    by = ", ".join(labels)
    held_time, busy = used("held_seconds", by), used("busy_seconds", by)
    return Panel(
        "table",
        title,
        f"{description} Idle is held minus busy: below 0, more than the share was used.",
        (
            Target(f"{held_time} {HOURS}"),
            Target(f"{busy} {HOURS}"),
            Target(f"({held_time} - {busy}) {HOURS}"),
            Target(f"{busy} / ({held_time} > 0)"),
            Target(f"{used('energy_joules', by)} {KWH}"),
            Target(cost(by)),
        ),
        width=24,
        columns={
            **labels,
            "Value #A": "Held hours",
            "Value #B": "Busy hours",
            "Value #C": "Idle hours",
            "Value #D": "Busy part",
            "Value #E": "Energy",
            "Value #F": "Cost",
        },
        cells={
            **cells,
            "Held hours": HOUR,
            "Busy hours": HOUR,
            "Idle hours": IDLE,
            "Busy part": PART,
            "Energy": Cell("kwatth"),
            "Cost": PRICED,
        },
        sort="Held hours",
        none="",
    )


BY = (
    table(
        "Namespaces",
        "Usage of each namespace within the time range. Jobs, and containers without pods, are "
        "together in the row without a name.",
        {"namespace": "Namespace"},
        {"Namespace": NAMESPACE},
    ),
    table(
        "Workloads",
        "Usage of each workload, if the source pods reports workloads; otherwise the names of the "
        "workload are empty. Users of jobs and Compose projects are workloads without a namespace.",
        {"namespace": "Namespace", "owner_kind": "Workload", "owner_name": "Workload name"},
        {"Namespace": NAMESPACE},
    ),
    Panel(
        "table",
        "Nodes",
        "Time of the devices of each node. Held, free and unknown are all the time of which podgpu "
        "has an account. Unattributed is busy time of no known container.",
        (
            Target(f"{held('Hostname')} {HOURS}"),
            Target(f"{of_nodes('busy_seconds', 'Hostname')} {HOURS}"),
            Target(f"({held('Hostname')} - {of_nodes('busy_seconds', 'Hostname')}) {HOURS}"),
            Target(f"{of_nodes('free_seconds', 'Hostname')} {HOURS}"),
            Target(f"{of_nodes('unknown_held_seconds', 'Hostname')} {HOURS}"),
            Target(f"{of_nodes('unattributed_busy_seconds', 'Hostname')} {HOURS}"),
            Target(
                f"{of_nodes('unattributed_energy_joules', 'Hostname')} {KWH}"
                f" + {over(container_rule('energy_joules'), OF_NODE, 'Hostname')} {KWH}"
            ),
        ),
        width=24,
        columns={
            "Hostname": "Node",
            "Value #A": "Held hours",
            "Value #B": "Busy hours",
            "Value #C": "Idle hours",
            "Value #D": "Free hours",
            "Value #E": "Unknown hours",
            "Value #F": "Unattributed hours",
            "Value #G": "Energy",
        },
        cells={
            "Node": NODE,
            "Held hours": HOUR,
            "Busy hours": HOUR,
            "Idle hours": IDLE,
            "Free hours": Cell("locale", ((None, "text"), (1, "blue")), "text", decimals=1),
            "Unknown hours": Cell("locale", ((None, "text"), (0.1, "red")), "text", decimals=1),
            "Unattributed hours": Cell(
                "locale", ((None, "text"), (0.1, "purple")), "text", decimals=1
            ),
            "Energy": Cell("kwatth"),
        },
        sort="Held hours",
        none="",
    ),
)

USAGE = dashboard(
    "podgpu-usage",
    "podgpu: usage and cost",
    "GPU hours, energy and cost of namespaces, workloads and nodes over weeks.",
    [
        choice(
            "node",
            "Node",
            f"label_values({device_rule('accounted_seconds')}, Hostname)",
            everything=".*",
        ),
        choice(
            "namespace",
            "Namespace",
            f"label_values({workload_rule('held_seconds')}, namespace)",
            everything=".*",
        ),
        number("gpu_hour_price", "Price of a GPU hour", "1"),
        number("kwh_price", "Price of a kWh", "0"),
    ],
    [("Totals", TOTALS), ("Over time", TIME), ("By namespace, workload and node", BY)],
    shown="now-7d",
)
