"""Groups the sums of an archive for a report, in DuckDB, by the rules of docs/reports.md#groups."""

from collections.abc import Sequence
from typing import Any, Final

from pipeline.archive.database import Database, literal
from pipeline.archive.report.owner_sql import kind_of_owner
from pipeline.base.errors import PermanentError
from pipeline.ledger.reports import GroupBy, GroupedUsage, GroupKey, PriceClass, Tally
from pipeline.ledger.reports.groups import OWN_WORKLOADS, OWNER_FACTS, group_keys
from pipeline.ledger.schema import HOUR_NS
from pipeline.model import OwnerKind
from pipeline.model.ledger_usage import DeviceTotal

MOST_GROUPS: Final = 200_000
"""Maximum number of groups of a report, which are in memory."""

# Containers with a uid but without a name belong to the only name of this uid. Names and facts of a
# pod are those of its own node, so that no node can change the groups of other nodes' usage.
_POD_NAMES: Final = """
CREATE OR REPLACE TABLE pod_names AS
SELECT cluster, node, pod_uid, max(row(pod <> '', namespace, pod)) AS name
FROM same_uids WHERE pod_uid <> '' GROUP BY ALL
HAVING count(DISTINCT (namespace, pod)) FILTER (pod <> '') < 2
"""
# Without a uid, a container stands alone.
_NAMED: Final = """
CREATE OR REPLACE VIEW named AS
SELECT
    sums.* EXCLUDE (device), devices.*,
    CASE WHEN name IS NULL THEN sums.namespace ELSE struct_extract(name, 2) END AS known_namespace,
    CASE WHEN name IS NULL THEN sums.pod ELSE struct_extract(name, 3) END AS known_pod,
    CASE WHEN sums.pod_uid = '' THEN hash(ledger, container) ELSE 0 END AS alone,
    hash(devices.cluster, devices.node, sums.pod_uid, known_namespace, known_pod, alone) AS pod_hash
FROM sums
JOIN devices ON devices.id = sums.device
LEFT JOIN pod_names ON pod_names.cluster = devices.cluster AND pod_names.node = devices.node
    AND pod_names.pod_uid = sums.pod_uid AND sums.pod = ''
WHERE NOT is_unattributed
"""
# What is known of a pod at any time is valid for all of its usage. Only the facts of few pods
# change, or differ between containers.
_CHANGED_PODS: Final = """
CREATE OR REPLACE TABLE changed_pods AS
SELECT pod_hash FROM named GROUP BY pod_hash
HAVING min(hash(owner_kind, owner_name, labels)) <> max(hash(owner_kind, owner_name, labels))
"""
_CHANGED_FACTS: Final = """
CREATE OR REPLACE TABLE changed_facts AS
WITH latest AS (
    SELECT
        cluster, node, pod_uid, known_namespace, known_pod, alone, pod_hash,
        coalesce(arg_max(owner_kind, facts_serial), '') AS owner_kind,
        coalesce(arg_max(owner_name, facts_serial), '') AS owner_name,
        coalesce(arg_max(labels, facts_serial), '{}') AS labels
    FROM named WHERE pod_hash IN (SELECT pod_hash FROM changed_pods)
    GROUP BY
        cluster, node, pod_uid, known_namespace, known_pod, alone, pod_hash, ledger, namespace, pod,
        container
)
SELECT
    cluster, node, pod_uid, known_namespace, known_pod, alone, pod_hash,
    max(row(owner_name <> '', owner_kind, owner_name)) AS owner,
    map_from_entries(
        max(list_sort(map_entries(CAST(CAST(labels AS JSON) AS MAP(VARCHAR, VARCHAR)))))
    ) AS labels
FROM latest GROUP BY ALL
"""
_WITH_CHANGED: Final = """
LEFT JOIN changed_facts AS changed ON changed.pod_hash = named.pod_hash
    AND changed.cluster = named.cluster AND changed.node = named.node
    AND changed.pod_uid = named.pod_uid
    AND changed.known_namespace = named.known_namespace AND changed.known_pod = named.known_pod
    AND changed.alone = named.alone
"""
_OWNER_KIND: Final = """
CASE WHEN changed.pod_hash IS NULL THEN named.owner_kind ELSE struct_extract(owner, 2) END
"""
_OWNER_NAME: Final = """
nullif(
    CASE WHEN changed.pod_hash IS NULL THEN named.owner_name ELSE struct_extract(owner, 3) END, ''
)
"""


def _label(key: str) -> str:
    """Return an SQL expression for a label of an owner."""
    path = literal(f'$."{key}"')
    return f"""CASE WHEN changed.pod_hash IS NULL THEN json_extract_string(named.labels, {path})
        ELSE changed.labels[{literal(key)}] END"""


def _of(kind: OwnerKind, value: str) -> str:
    """Return an SQL expression for a value that only one kind of owner has; NULL if empty."""
    return f"CASE WHEN {_KIND} = '{kind}' THEN nullif({value}, '') END"


_KIND: Final = kind_of_owner("named.pod_uid")
# Only pods are in a namespace. For a job, it is the Slurm cluster.
_NAMESPACE: Final = _of("pod", "named.known_namespace")
_OWN_WORKLOAD: Final = "CASE {kind} {cases} END".format(
    kind=_KIND, cases=" ".join(f"WHEN '{kind}' THEN '{own}'" for kind, own in OWN_WORKLOADS.items())
)

_KEYS: Final = {
    "namespace": (_NAMESPACE,),
    "pod": (
        "nullif(named.cluster, '')",
        "nullif(named.node, '')",
        _NAMESPACE,
        "nullif(named.known_pod, '')",
        "nullif(named.pod_uid, '')",
    ),
    "workload": (
        _NAMESPACE,
        f"CASE WHEN {_OWNER_NAME} IS NULL THEN {_OWN_WORKLOAD} ELSE nullif({_OWNER_KIND}, '') END",
        f"""coalesce({_OWNER_NAME}, nullif(named.known_pod, ''),
            'uid ' || coalesce(nullif(named.pod_uid, ''), 'unknown'))""",
    ),
    "job": (
        _of("job", "named.cluster"),
        _of("job", "named.known_namespace"),
        _of("job", "named.known_pod"),
        _of("job", _label("job_name")),
        _of("job", _label("user")),
        _of("job", "named.pod_uid"),
    ),
    **{fact: (_of(kind, _label(fact)),) for fact, kind in OWNER_FACTS.items()},
    "device": (
        "nullif(cluster, '')",
        "nullif(node, '')",
        "device",
        "nullif(trim(concat_ws(' ', model, profile)), '')",
    ),
    "model": ("nullif(model, '')", "nullif(profile, '')"),
    "node": ("nullif(cluster, '')", "nullif(node, '')"),
    "cluster": ("nullif(cluster, '')",),
}
_OF_FACTS: Final = {"workload", "job", "label", *OWNER_FACTS}

# The unknown time of a device is a part of the time that no container held it.
_FREE: Final = """
CREATE OR REPLACE TABLE unattributed AS
WITH unknown AS (
    SELECT device AS id, since_hour, sum(unknown_ns) AS unknown_ns FROM device_sums GROUP BY ALL
),
rest AS (
    SELECT
        device AS id, since_hour, sum(held_ns) AS held_ns, sum(busy_ns) AS busy_ns,
        sum(idle_ns) AS idle_ns, sum(energy_mj) AS energy_mj,
        bool_or(busy_missing) AS busy_missing, bool_or(energy_missing) AS energy_missing,
        NULL::HUGEINT AS contested_ns, NULL::HUGEINT AS switching_ns, true AS contest_missing
    FROM sums WHERE is_unattributed GROUP BY ALL
)
SELECT
    rest.* REPLACE (0 AS held_ns), devices.* EXCLUDE (id),
    least(coalesce(unknown_ns, 0), held_ns) AS unknown_ns,
    held_ns - unknown_ns AS free_ns, 0 AS holdings
FROM rest JOIN devices USING (id) LEFT JOIN unknown USING (id, since_hour)
"""
_FIGURES: Final = """
cluster, coalesce(model, '') AS model, coalesce(profile, '') AS profile,
starts_with(device, 'MIG-') AS is_instance, since_hour, sum(held_ns) AS held_ns,
sum(free_ns) AS free_ns, sum(unknown_ns) AS unknown_ns,
sum(busy_ns) AS busy_ns, bool_or(busy_missing) AS busy_missing, sum(idle_ns) AS idle_ns,
sum(energy_mj) AS energy_mj, bool_or(energy_missing) AS energy_missing, sum(holdings) AS holdings,
sum(contested_ns) AS contested_ns, sum(switching_ns) AS switching_ns,
bool_or(contest_missing) AS contest_missing
"""
_OF_CONTAINERS: Final = f"""
SELECT false AS is_unattributed, {{keys}}, {_FIGURES}
FROM (
    SELECT
        {{values}}, named.* EXCLUDE ({{hidden}}), 0 AS free_ns, 0 AS unknown_ns
    FROM named {{joined}} WHERE {{wanted}}
)
GROUP BY ALL
UNION ALL
SELECT true AS is_unattributed, {{nulls}}, {_FIGURES}
FROM unattributed WHERE {{wanted}} GROUP BY ALL
"""  # noqa: S608
_OF_DEVICES: Final = f"""
SELECT false AS is_unattributed, {{keys}}, {_FIGURES}
FROM (
    SELECT *, 0 AS free_ns, 0 AS unknown_ns FROM named UNION ALL BY NAME SELECT * FROM unattributed
)
WHERE {{wanted}} GROUP BY ALL
"""  # noqa: S608


def make_parts(database: Database) -> None:
    """Make what the queries of groups read, after `usage_sums.sum_usage`.

    Raises:
        PermanentError: the memory limit is too low.
    """
    for statement in (_POD_NAMES, _NAMED, _FREE):
        database.execute(statement)


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
    if by.kind in _OF_FACTS:
        database.execute(_CHANGED_PODS)
        database.execute(_CHANGED_FACTS)
    query = _query(by, devices)
    rows = database.execute(f"{query} LIMIT {MOST_GROUPS + 1}")
    if len(rows) > MOST_GROUPS:
        raise PermanentError(
            f"a report by {by} would have more than {MOST_GROUPS} rows, which is the limit: give "
            "a shorter time, or group by workload or namespace"
        )
    count = len(by.fields)
    parts = [None if unattributed else tuple(rest[:count]) for unattributed, *rest in rows]
    keys = {key.parts: key for key in group_keys(by, dict.fromkeys(filter(None, parts)), totals)}
    return [
        _usage(None if key is None else keys[key], row[count + 1 :])
        for key, row in zip(parts, rows, strict=True)
    ]


def _query(by: GroupBy, devices: Sequence[int] | None) -> str:
    wanted = "true" if devices is None else f"id IN ({', '.join(map(str, devices))})"
    columns: Sequence[str] = _KEYS.get(by.kind, ())
    if by.kind == "label":
        columns = (_label(by.label),)
    names = [f"key_{number}" for number in range(len(columns))]
    values = ", ".join(f"{column} AS {name}" for column, name in zip(columns, names, strict=True))
    if by.is_of_devices:
        return _OF_DEVICES.format(keys=values, wanted=wanted)
    return _OF_CONTAINERS.format(
        keys=", ".join(names),
        values=values,
        nulls=", ".join(f"NULL AS {name}" for name in names),
        hidden="namespace, pod, container, pod_uid, ledger, labels, owner_kind, owner_name",
        joined=_WITH_CHANGED if by.kind in _OF_FACTS else "",
        wanted=wanted,
    )


def _usage(key: GroupKey | None, row: Sequence[Any]) -> GroupedUsage:
    cluster, model, profile, is_instance, since_hour, held, free, unknown, *sums = row
    busy, no_busy, idle, energy, no_energy, holdings, contested, switching, no_contest = sums
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
        Tally(contested, no_contest),
        Tally(switching, no_contest),
    )
