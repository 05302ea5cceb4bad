"""The rows of a FOCUS export that make up for rounding."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Final

from pipeline.archive.database import Database
from pipeline.ledger.reports.costs import round_to_total
from pipeline.ledger.reports.price_list import PriceList

_HOUR_NS: Final = 3_600 * 10**9
_KWH_MJ: Final = 3_600_000 * 1_000


def rounding_rows(
    database: Database, names: Sequence[str], prices: PriceList
) -> list[tuple[Any, ...]]:
    """Return the rows that make up for rounding, at most one for each account and month.

    Costs of rows are products of quantities with nine decimal places. The total of a report is
    calculated without rounding, and then rounded to cents. The exact costs by account and month
    are rounded in the same way, so that they sum to this total, and a row adds the difference.

    Args:
        database: a database with the view `focus_charges`.
        names: the columns of a row.
        prices: the prices.
    """
    exact: dict[tuple[str, str, datetime, datetime], Fraction] = {}
    for *place, kind, price, slices, of_slices, amount in database.execute(
        "SELECT account, account_type, billing_start, billing_end, kind, unit_price, slices, "
        "of_slices, sum(amount) FROM focus_charges GROUP BY ALL ORDER BY ALL"
    ):
        unit = Fraction(1, _KWH_MJ) if kind == "energy" else Fraction(slices, of_slices * _HOUR_NS)
        key = (place[0], place[1], place[2], place[3])
        exact[key] = exact.get(key, Fraction(0)) + Fraction(price) * unit * int(amount)
    sums = "SELECT account, billing_start, sum(cost) FROM focus_charges GROUP BY ALL"
    of_rows = {(account, start): cost for account, start, cost in database.execute(sums)}
    spans = (
        "SELECT billing_start, min(period_start), max(period_end) FROM focus_periods GROUP BY ALL"
    )
    charges = {start: (first, after) for start, first, after in database.execute(spans)}
    found = []
    rounded = round_to_total(list(exact.values()))
    with localcontext(prec=60):
        for (name, kind, start, end), total in zip(exact, rounded, strict=True):
            difference = total - of_rows[name, start]
            if difference:
                account, billing = (name, kind), (start, end)
                values = _adjustment(prices, account, billing, charges[start], difference)
                found.append(tuple([values.get(column) for column in names]))
    return found


def _adjustment(
    prices: PriceList,
    account: tuple[str, str],
    billing: tuple[datetime, datetime],
    charge: tuple[datetime, datetime],
    cost: Decimal,
) -> dict[str, Any]:
    costs = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
    return dict.fromkeys((*costs, "PricingCurrencyEffectiveCost"), cost) | {
        "BillingAccountId": account[0],
        "BillingAccountName": account[0],
        "BillingAccountType": account[1],
        "BillingCurrency": prices.currency,
        "BillingPeriodStart": billing[0],
        "BillingPeriodEnd": billing[1],
        "ChargeCategory": "Adjustment",
        "ChargeDescription": "Rounding of the total to two decimal places",
        "ChargeFrequency": "One-Time",
        "ChargePeriodStart": charge[0],
        "ChargePeriodEnd": charge[1],
        "InvoiceIssuerName": prices.provider,
        "PricingCurrency": prices.currency,
        "ProviderName": prices.provider,
        "PublisherName": prices.provider,
        "ServiceCategory": "Compute",
        "ServiceName": "GPU",
        "ServiceSubcategory": "Other (Compute)",
    }
