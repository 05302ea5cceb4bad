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
    exact: dict[tuple[str, datetime, datetime], Fraction] = {}
    for account, start, end, kind, price, slices, of_slices, amount in database.execute(
        "SELECT account, billing_start, billing_end, kind, unit_price, slices, of_slices, "
        "sum(amount) FROM focus_charges GROUP BY ALL ORDER BY ALL"
    ):
        unit = Fraction(1, _KWH_MJ) if kind == "energy" else Fraction(slices, of_slices * _HOUR_NS)
        cost = Fraction(price) * unit * int(amount)
        exact[account, start, end] = exact.get((account, start, end), Fraction(0)) + cost
    sums = "SELECT account, billing_start, sum(cost) FROM focus_charges GROUP BY ALL"
    of_rows = {(account, start): cost for account, start, cost in database.execute(sums)}
    spans = (
        "SELECT billing_start, min(period_start), max(period_end) FROM focus_periods GROUP BY ALL"
    )
    charges = {start: (first, after) for start, first, after in database.execute(spans)}
    found = []
    rounded = round_to_total(list(exact.values()))
    with localcontext(prec=60):
        for (account, start, end), total in zip(exact, rounded, strict=True):
            difference = total - of_rows[account, start]
            if difference:
                values = _adjustment(prices, account, (start, end), charges[start], difference)
                found.append(tuple([values.get(name) for name in names]))
    return found


def _adjustment(
    prices: PriceList,
    account: str,
    billing: tuple[datetime, datetime],
    charge: tuple[datetime, datetime],
    cost: Decimal,
) -> dict[str, Any]:
    costs = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
    return dict.fromkeys((*costs, "PricingCurrencyEffectiveCost"), cost) | {
        "BillingAccountId": account,
        "BillingAccountName": account,
        "BillingAccountType": "Cluster",
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
