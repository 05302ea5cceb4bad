"""Groups the sums of an archive for a report, in DuckDB, by the rules of docs/reports.md#groups."""

from collections.abc import Sequence
from typing import Any, Final

from pipeline.archive.database import Database, literal
from pipeline.base.errors import PermanentError
from pipeline.ledger.reports import GroupBy, GroupedUsage, GroupKey, PriceClass, Tally
from pipeline.ledger.reports.groups import group_keys
from pipeline.ledger.schema import HOUR_NS
from pipeline.model.ledger_usage import DeviceTotal

MOST_GROUPS: Final = 200_000
"""Maximum number of groups of a report, which are in memory."""

# What is known of a pod at any time is valid for all of its usage. Containers with a uid but
# without a name belong to the only name of this uid. Without a uid, a container stands alone.
_PODS: Final = """
CREATE OR REPLACE TABLE pods AS
WITH names AS (
    SELECT cluster, pod_uid, count(DISTINCT (namespace, pod)) FILTER (pod <> '') AS names
    FROM containers WHERE pod_uid <> '' GROUP BY ALL
),
keyed AS (
    SELECT
        containers.*,
        CASE WHEN pod_uid = '' THEN id ELSE 0 END AS alone,
        CASE WHEN names > 1 THEN namespace ELSE '' END AS key_namespace,
        CASE WHEN names > 1 THEN pod ELSE '' END AS key_pod
    FROM containers LEFT JOIN names USING (cluster, pod_uid)
),
known AS (
    SELECT
        cluster, pod_uid, alone, key_namespace, key_pod,
        max(row(pod <> '', namespace, pod)) AS name,
        max(row(
            coalesce(owner_name, '') <> '', coalesce(owner_kind, ''), coalesce(owner_name, '')
        )) AS owner,
        max(list_sort(map_entries(
            CAST(CAST(coalesce(labels, '{}') AS JSON) AS MAP(VARCHAR, VARCHAR))
        ))) AS labels
    FROM keyed GROUP BY ALL
)
SELECT
    id, cluster, node,
    nullif(struct_extract(name, 2), '') AS namespace, nullif(struct_extract(name, 3), '') AS pod,
    nullif(pod_uid, '') AS pod_uid,
    nullif(struct_extract(owner, 2), '') AS owner_kind,
    nullif(struct_extract(owner, 3), '') AS owner_name,
    map_from_entries(known.labels) AS labels
FROM keyed JOIN known USING (cluster, pod_uid, alone, key_namespace, key_pod)
"""

_KEYS: Final = {
    "namespace": ("pods.namespace",),
    "pod": (
        "nullif(pods.cluster, '')",
        "nullif(pods.node, '')",
        "pods.namespace",
        "pods.pod",
        "pods.pod_uid",
    ),
    "workload": (
        "pods.namespace",
        "CASE WHEN pods.owner_name IS NULL THEN 'Pod' ELSE pods.owner_kind END",
        "coalesce(pods.owner_name, pods.pod, 'uid ' || coalesce(pods.pod_uid, 'unknown'))",
    ),
    "device": (
        "nullif(devices.cluster, '')",
        "nullif(devices.node, '')",
        "devices.device",
        "nullif(trim(concat_ws(' ', devices.model, devices.profile)), '')",
    ),
    "model": ("nullif(devices.model, '')", "nullif(devices.profile, '')"),
    "node": ("nullif(devices.cluster, '')", "nullif(devices.node, '')"),
    "cluster": ("nullif(devices.cluster, '')",),
}

# The unknown time of a device is a part of the time that no container held it.
_PARTS: Final = """
CREATE OR REPLACE TABLE parts AS
WITH unknown AS (
    SELECT device, since_hour, sum(unknown_ns) AS unknown_ns FROM device_sums GROUP BY ALL
),
whole AS (
    SELECT
        device, container, since_hour, sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns,
        sum(idle_ns) AS idle_ns, sum(energy_mj) AS energy_mj,
        bool_or(busy_missing) AS busy_missing, bool_or(energy_missing) AS energy_missing
    FROM sums GROUP BY ALL
),
counted AS (
    SELECT device, container, sum(holdings) AS holdings FROM holding_counts GROUP BY ALL
)
SELECT
    whole.* REPLACE (CASE WHEN container = 0 THEN 0 ELSE held_ns END AS held_ns),
    CASE WHEN container = 0 THEN held_ns - least(coalesce(unknown_ns, 0), held_ns) ELSE 0 END
        AS free_ns,
    CASE WHEN container = 0 THEN least(coalesce(unknown_ns, 0), held_ns) ELSE 0 END AS unknown_ns,
    CASE WHEN since_hour = min(since_hour) OVER (PARTITION BY device, container)
        THEN coalesce(holdings, 0) ELSE 0 END AS holdings
FROM whole
LEFT JOIN unknown USING (device, since_hour)
LEFT JOIN counted USING (device, container)
"""

_GROUPS: Final = """
SELECT
    {nobody} AS nobody, {keys},
    devices.cluster AS price_cluster, devices.model AS price_model,
    devices.profile AS price_profile, starts_with(devices.device, 'MIG-') AS is_instance,
    since_hour, sum(held_ns), sum(free_ns), sum(unknown_ns),
    sum(busy_ns), bool_or(busy_missing), sum(idle_ns), sum(energy_mj), bool_or(energy_missing),
    sum(holdings)
FROM parts
JOIN devices ON devices.id = parts.device
LEFT JOIN pods ON pods.id = parts.container
WHERE {wanted}
GROUP BY ALL
"""


def make_parts(database: Database) -> None:
    """Make the tables `pods` and `parts`, after `usage_sums.sum_usage` and `count_items`.

    Raises:
        PermanentError: the memory limit is too low.
    """
    database.execute(_PODS)
    database.execute(_PARTS)


def grouped_usage(
    database: Database, by: GroupBy, totals: Sequence[DeviceTotal], devices: Sequence[int] | None
) -> list[GroupedUsage]:
    """Return the usage by group and price class.

    Args:
        database: a database after `make_parts`.
        by: how to group it; of several nodes.
        totals: the devices.
        devices: numbers of the devices to report; None for all.

    Raises:
        PermanentError: there are too many groups, or the memory limit is too low.
    """
    query = _query(by, devices)
    (found,) = database.execute(f"SELECT count(*) FROM ({query})")[0]  # noqa: S608
    if found > MOST_GROUPS:
        raise PermanentError(
            f"a report by {by} would have about {found} rows, and the limit is {MOST_GROUPS}: give "
            "a shorter time, or group by workload or namespace"
        )
    rows = database.execute(query)
    count = len(by.fields)
    parts = [None if nobody else tuple(rest[:count]) for nobody, *rest in rows]
    keys = {key.parts: key for key in group_keys(by, dict.fromkeys(filter(None, parts)), totals)}
    return [
        _usage(None if key is None else keys[key], row[count + 1 :])
        for key, row in zip(parts, rows, strict=True)
    ]


def _query(by: GroupBy, devices: Sequence[int] | None) -> str:
    nobody = "false" if by.is_of_devices else "parts.container = 0"
    columns: Sequence[str] = _KEYS.get(by.kind, ())
    if by.kind == "label":
        columns = (f"pods.labels[{literal(by.label)}]",)
    keys = ", ".join(f"{column} AS key_{number}" for number, column in enumerate(columns))
    wanted = "true" if devices is None else f"devices.id IN ({', '.join(map(str, devices))})"
    return _GROUPS.format(nobody=nobody, keys=keys, wanted=wanted)


def _usage(key: GroupKey | None, row: Sequence[Any]) -> GroupedUsage:
    cluster, model, profile, is_instance, since_hour, held, free, unknown, *sums = row
    busy, no_busy, idle, energy, no_energy, holdings = sums
    price = PriceClass(model or "", profile or "", is_instance, cluster, since_hour * HOUR_NS)
    return GroupedUsage(
        key,
        price,
        held,
        free,
        unknown,
        Tally(busy, no_busy),
        Tally(idle, no_busy),
        Tally(energy, no_energy),
        int(holdings),
    )
