"""The rows of a FOCUS export, from an archive and prices.

FOCUS is the FinOps Open Cost and Usage Specification (https://focus.finops.org/). The sum of the
billed costs is exactly the total of a report on the same usage: see `rounding_rows`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import date, tzinfo
from pathlib import Path
from typing import Any, Final

from pipeline.archive.database import Database, literal
from pipeline.archive.focus_periods import ChargePeriod, charge_periods, days_around, timestamp
from pipeline.archive.focus_rounding import rounding_rows
from pipeline.archive.row_columns import day_of_moment
from pipeline.base.errors import PermanentError, TransientError
from pipeline.ledger.reports.costs import gpu_fraction
from pipeline.ledger.reports.grouped_usage import PriceClass
from pipeline.ledger.reports.price_list import PriceList

_HOUR_NS: Final = 3_600 * 10**9
_MOST_NAMED: Final = 10
_BATCH: Final = 1000
_SQL: Final = Path(__file__).with_name("focus.sql").read_text(encoding="utf-8")
_ORDER: Final = (
    "ChargePeriodStart, BillingAccountId, x_NodeName, ResourceId, SkuMeter DESC, "
    "x_UsageState DESC, SubAccountId, x_WorkloadKind, x_WorkloadName, Tags"
)


@dataclass(frozen=True, slots=True)
class FocusExport:
    """What a FOCUS export contains.

    Attributes:
        start_ns: start of the span, in ns of Unix time.
        end_ns: end of the span. All hours that overlap the span are exported.
        tz: the time zone of charge periods and billing periods.
        hourly: whether a charge period is an hour instead of a day.
        prices: the prices.
    """

    start_ns: int
    end_ns: int
    tz: tzinfo
    hourly: bool
    prices: PriceList

    @property
    def hours(self) -> tuple[int, int]:
        """Start of the first hour, and end of the last one."""
        return self.start_ns // _HOUR_NS * _HOUR_NS, -(-self.end_ns // _HOUR_NS) * _HOUR_NS


def columns(database: Database) -> dict[str, str]:
    """Return the SQL types of the columns by name, after `create_focus`."""
    return {str(name): str(kind) for name, kind, *_ in database.execute("DESCRIBE focus")}


def create_focus(database: Database, days: Mapping[date, str], export: FocusExport) -> list[str]:
    """Make the view `focus` of focus.sql.

    Args:
        database: a database.
        days: by UTC day, the SQL query of its rows, each once.
        export: what to export.

    Returns:
        A sentence for each model whose MIG instances have no price, because their profile is
        unknown. Their time is not in the view.

    Raises:
        TransientError: there is no usage in the span.
        PermanentError: a model, or a cluster, has no price at some time.
    """
    wanted = [rows for day, rows in sorted(days.items()) if _is_wanted(day, export)]
    if not wanted:
        raise _no_usage()
    _set_source(database, " UNION ALL BY NAME ".join(wanted))
    database.execute(_SQL)
    periods = _periods(database, export)
    _insert(database, "focus_periods", [tuple(map(timestamp, astuple(each))) for each in periods])
    span = f"hour >= {_moment(periods[0].start)} AND hour < {_moment(periods[-1].end)}"
    for rows in wanted:
        # What became known of a pod after the span applies too.
        _set_source(database, f"SELECT * FROM ({rows}) WHERE hour IS NULL OR ({span})")  # noqa: S608
        for name in ("focus_sums", "focus_facts", "focus_devices"):
            database.execute(f"INSERT INTO {name} FROM new_{name}")
    database.execute("INSERT INTO focus_amounts FROM new_focus_amounts")
    _insert(database, "focus_prices", _prices(database, export.prices))
    parts, notes = _parts(database)
    _insert(database, "focus_parts", parts)
    database.execute(
        f"SET VARIABLE currency = {literal(export.prices.currency)}; "
        f"SET VARIABLE provider = {literal(export.prices.provider)}"
    )
    return notes


def focus_rows(database: Database, export: FocusExport) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the rows in lists, after `create_focus`: first the charges, then the adjustments.

    Values are texts, `Decimal`, `datetime` in UTC, or None.
    """
    adjustments = rounding_rows(database, list(columns(database)), export.prices)
    yield from database.stream(f"SELECT * FROM focus ORDER BY {_ORDER}")  # noqa: S608 - a constant
    if adjustments:
        yield adjustments


def focus_texts(database: Database, export: FocusExport) -> Iterator[list[tuple[str | None, ...]]]:
    """Yield the rows as `focus_rows` does, with all values as texts, or None.

    Numbers have no zeros at the end. Times have the form `2026-10-01T00:00:00Z`. DuckDB makes the
    texts, because an export can have millions of rows.
    """
    adjustments = rounding_rows(database, list(columns(database)), export.prices)
    names = columns(database)
    texts = [_text(f"focus.{name}", kind) for name, kind in names.items()]
    yield from database.stream(
        f"SELECT {', '.join(texts)} FROM focus ORDER BY {_ORDER}"  # noqa: S608 - names of columns
    )
    if adjustments:
        holes = [_text(f"CAST(? AS {kind})", kind) for kind in names.values()]
        for row in adjustments:
            yield database.execute(f"SELECT {', '.join(holes)}", row)


def _text(value: str, kind: str) -> str:
    if kind.startswith("DECIMAL"):
        return f"rtrim(rtrim(CAST({value} AS VARCHAR), '0'), '.')"
    if kind.startswith("TIMESTAMP"):
        return f"strftime({value}, '%Y-%m-%dT%H:%M:%SZ')"
    return f"CAST({value} AS VARCHAR)"


def _periods(database: Database, export: FocusExport) -> list[ChargePeriod]:
    """Return the charge periods, from the first day with usage to the last one.

    Raises:
        TransientError: there is no usage in the span.
    """
    ((first, last),) = database.execute(
        "SELECT epoch_ns(min(hour)), epoch_ns(max(hour)) FROM focus_source "
        "WHERE row IN ('usage', 'device') AND hour >= ? AND hour < ?",
        tuple(map(timestamp, export.hours)),
    )
    if first is None:
        raise _no_usage()
    start, end = days_around(first, last, export.tz)
    found = charge_periods(
        max(export.hours[0], start),
        min(export.hours[1], end),
        export.prices.changes,
        export.tz,
        hourly=export.hourly,
    )
    return list(found)


def _prices(database: Database, prices: PriceList) -> list[tuple[Any, ...]]:
    """Return the rows of `focus_prices`.

    Raises:
        PermanentError: a price is unknown.
    """
    rows: list[tuple[Any, ...]] = []
    missing: list[str] = []
    for kind, cluster, model, start, ns in database.execute(
        "SELECT kind, cluster, model, price_start, epoch_ns(price_start) FROM focus_amounts "
        "GROUP BY ALL ORDER BY ALL"
    ):
        if not (prices.charges_energy if kind == "energy" else prices.charges_time):
            continue
        if kind == "energy":
            price = prices.kwh(cluster, ns)
        else:
            price = prices.gpu_hour(kind, model, cluster, ns)
        if price is None:
            what = "a kilowatt hour" if kind == "energy" else f"an hour of {model or 'a GPU'}"
            missing.append(f"{what} in {cluster or 'this cluster'} from {start:%Y-%m-%d %H:%M} UTC")
        rows.append((kind, cluster, model, start, price))
    if missing:
        named = list(dict.fromkeys(missing))
        more = f", and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        raise PermanentError(
            f"the price file has no price of {', '.join(named[:_MOST_NAMED])}{more}. A row of "
            "FOCUS must have a cost, so nothing is exported; add an entry, with the price 0 if it "
            "costs nothing"
        )
    return rows


def _parts(database: Database) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Return the rows of `focus_parts`, and a note for each model with an unknown part."""
    rows: list[tuple[Any, ...]] = []
    notes: list[str] = []
    for model, profile, is_instance in database.execute(
        "SELECT DISTINCT model, profile, is_instance FROM focus_amounts ORDER BY ALL"
    ):
        one = PriceClass(model=model, profile=profile, is_instance=is_instance)
        part = gpu_fraction(one)
        if part is None:
            notes.append(
                f"MIG instances of {model or 'a GPU'} with the profile {profile or '(unknown)'} "
                "have no rows: it is unknown which part of the GPU they are, and so what they cost"
            )
        else:
            rows.append((model, profile, is_instance, part.numerator, part.denominator))
    return rows, notes


def _is_wanted(day: date, export: FocusExport) -> bool:
    start_ns, end_ns = export.hours
    return day_of_moment(start_ns) <= day <= day_of_moment(end_ns - 1)


def _set_source(database: Database, rows: str) -> None:
    database.execute(f"CREATE OR REPLACE TEMP VIEW focus_source AS {rows}")


def _moment(ns: int) -> str:
    return f"CAST('{timestamp(ns):%Y-%m-%d %H:%M:%S+00}' AS TIMESTAMPTZ)"


def _no_usage() -> TransientError:
    return TransientError("there is no usage in this time; give another time")


def _insert(database: Database, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for at in range(0, len(rows), _BATCH):
        part = rows[at : at + _BATCH]
        holes = f"({', '.join('?' * len(part[0]))})"
        database.execute(
            f"INSERT INTO {table} VALUES {', '.join([holes] * len(part))}",  # noqa: S608
            [value for row in part for value in row],
        )
