"""The rules of FOCUS 1.2 for the columns of a dataset of cost and usage.

The names, types and nulls are those of https://focus.finops.org/focus-specification/v1-2/. The
program focus-validator knows FOCUS 1.0 only: the columns of 1.1 and 1.2, and the rules that compare
columns, are checked only here.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

Row = Mapping[str, Any]


class Rule(NamedTuple):
    """A column: its type, the version that introduced it, whether it has nulls, and its values."""

    name: str
    type: type
    since: str = "1.0"
    nulls: bool = True
    values: frozenset[str] | None = None


def _of(*values: str) -> frozenset[str]:
    return frozenset(values)


COLUMNS: Final = (
    Rule("AvailabilityZone", str),
    Rule("BilledCost", Decimal, nulls=False),
    Rule("BillingAccountId", str, nulls=False),
    Rule("BillingAccountName", str),
    Rule("BillingAccountType", str, "1.2", nulls=False),
    Rule("BillingCurrency", str, nulls=False),
    Rule("BillingPeriodEnd", datetime, nulls=False),
    Rule("BillingPeriodStart", datetime, nulls=False),
    Rule("CapacityReservationId", str, "1.1"),
    Rule("CapacityReservationStatus", str, "1.1", values=_of("Used", "Unused")),
    Rule(
        "ChargeCategory", str, nulls=False,
        values=_of("Usage", "Purchase", "Tax", "Credit", "Adjustment"),
    ),
    Rule("ChargeClass", str, values=_of("Correction")),
    Rule("ChargeDescription", str),
    Rule(
        "ChargeFrequency", str, nulls=False, values=_of("One-Time", "Recurring", "Usage-Based")
    ),
    Rule("ChargePeriodEnd", datetime, nulls=False),
    Rule("ChargePeriodStart", datetime, nulls=False),
    Rule("CommitmentDiscountCategory", str, values=_of("Spend", "Usage")),
    Rule("CommitmentDiscountId", str),
    Rule("CommitmentDiscountName", str),
    Rule("CommitmentDiscountQuantity", Decimal, "1.1"),
    Rule("CommitmentDiscountStatus", str, values=_of("Used", "Unused")),
    Rule("CommitmentDiscountType", str),
    Rule("CommitmentDiscountUnit", str, "1.1"),
    Rule("ConsumedQuantity", Decimal),
    Rule("ConsumedUnit", str),
    Rule("ContractedCost", Decimal, nulls=False),
    Rule("ContractedUnitPrice", Decimal),
    Rule("EffectiveCost", Decimal, nulls=False),
    Rule("InvoiceId", str, "1.2"),
    Rule("InvoiceIssuerName", str, nulls=False),
    Rule("ListCost", Decimal, nulls=False),
    Rule("ListUnitPrice", Decimal),
    Rule("PricingCategory", str, values=_of("Standard", "Dynamic", "Committed", "Other")),
    Rule("PricingCurrency", str, "1.2", nulls=False),
    Rule("PricingCurrencyContractedUnitPrice", Decimal, "1.2"),
    Rule("PricingCurrencyEffectiveCost", Decimal, "1.2", nulls=False),
    Rule("PricingCurrencyListUnitPrice", Decimal, "1.2"),
    Rule("PricingQuantity", Decimal),
    Rule("PricingUnit", str),
    Rule("ProviderName", str, nulls=False),
    Rule("PublisherName", str, nulls=False),
    Rule("RegionId", str),
    Rule("RegionName", str),
    Rule("ResourceId", str),
    Rule("ResourceName", str),
    Rule("ResourceType", str),
    Rule("ServiceCategory", str, nulls=False, values=_of("Compute")),
    Rule("ServiceName", str, nulls=False),
    Rule(
        "ServiceSubcategory", str, "1.1", nulls=False,
        values=_of(
            "Containers", "End User Computing", "Quantum Compute", "Serverless Compute",
            "Virtual Machines", "Other (Compute)",
        ),
    ),
    Rule("SkuId", str),
    Rule("SkuMeter", str, "1.1"),
    Rule("SkuPriceDetails", str, "1.1"),
    Rule("SkuPriceId", str),
    Rule("SubAccountId", str),
    Rule("SubAccountName", str),
    Rule("SubAccountType", str, "1.2"),
    Rule("Tags", str),
)  # fmt: skip
"""The columns of FOCUS 1.2 in the order that it recommends."""

_WITH_PRICE: Final = (
    "ContractedUnitPrice", "ListUnitPrice", "PricingCategory", "PricingCurrencyListUnitPrice",
    "PricingCurrencyContractedUnitPrice", "PricingQuantity", "PricingUnit", "SkuId", "SkuPriceId",
    "SkuMeter", "ConsumedQuantity", "ConsumedUnit",
)  # fmt: skip
"""Columns that are not null in a row of usage, and null in an adjustment without a SKU."""

BETWEEN: Final[Mapping[str, Callable[[Row], bool]]] = {
    "the list cost is the quantity times the list unit price": lambda row: (
        row["PricingQuantity"] is None
        or row["ListCost"] == row["PricingQuantity"] * row["ListUnitPrice"]
    ),
    "the contracted cost is the quantity times the contracted unit price": lambda row: (
        row["PricingQuantity"] is None
        or row["ContractedCost"] == row["PricingQuantity"] * row["ContractedUnitPrice"]
    ),
    "prices are 0 or more": lambda row: (row["ListUnitPrice"] or 0) >= 0,
    "usage has a price, a SKU and quantities": lambda row: (
        row["ChargeCategory"] != "Usage" or all(row[name] is not None for name in _WITH_PRICE)
    ),
    "without a SKU price there is no price and no quantity": lambda row: (
        row["SkuPriceId"] is not None or all(row[name] is None for name in _WITH_PRICE)
    ),
    "only usage is consumed": lambda row: (
        row["ConsumedQuantity"] is None or row["ChargeCategory"] == "Usage"
    ),
    "a quantity has a unit": lambda row: (
        (row["ConsumedQuantity"] is None) == (row["ConsumedUnit"] is None)
        and (row["PricingQuantity"] is None) == (row["PricingUnit"] is None)
    ),
    "usage is charged by usage": lambda row: (
        (row["ChargeCategory"] == "Usage") == (row["ChargeFrequency"] == "Usage-Based")
    ),
    "the charge period is not empty, and in the billing period": lambda row: (
        row["BillingPeriodStart"]
        <= row["ChargePeriodStart"]
        < row["ChargePeriodEnd"]
        <= row["BillingPeriodEnd"]
    ),
    "a sub account has an id, a name and a type, or none of them": lambda row: (
        len({row[f"SubAccount{part}"] is None for part in ("Id", "Name", "Type")}) == 1
    ),
    "a resource has an id, a name and a type, or none of them": lambda row: (
        len({row[f"Resource{part}"] is None for part in ("Id", "Name", "Type")}) == 1
    ),
    "pricing and billing have one currency": lambda row: (
        row["PricingCurrency"] == row["BillingCurrency"]
        and row["PricingCurrencyEffectiveCost"] == row["EffectiveCost"]
        and row["PricingCurrencyListUnitPrice"] == row["ListUnitPrice"]
        and row["PricingCurrencyContractedUnitPrice"] == row["ContractedUnitPrice"]
    ),
    "nothing is committed or reserved": lambda row: all(
        row[name] is None
        for name in row
        if name.startswith(("CommitmentDiscount", "CapacityReservation"))
    ),
    "tags are an object of texts": lambda row: _is_object_of_texts(row["Tags"]),
    "details of a price are an object with keys of podgpu's own": lambda row: (
        row["SkuPriceDetails"] is None
        or all(key.startswith("x_") for key in json.loads(row["SkuPriceDetails"]))
    ),
}
"""Rules that compare columns of one row."""


def broken(row: Row) -> Iterator[str]:
    """Yield the rules that a row of an export breaks."""
    for rule in COLUMNS:
        value = row[rule.name]
        if value is None:
            if not rule.nulls:
                yield f"{rule.name} is null"
            continue
        if not isinstance(value, rule.type):
            yield f"{rule.name} is of type {type(value).__name__}"
        if rule.values is not None and value not in rule.values:
            yield f"{rule.name} is {value!r}"
        if value == "" or (isinstance(value, str) and value.strip() != value):
            yield f"{rule.name} is {value!r}: empty, or with spaces around it"
        if isinstance(value, datetime) and value.utcoffset() != UTC.utcoffset(None):
            yield f"{rule.name} is not in UTC"
    for text, holds in BETWEEN.items():
        if not holds(row):
            yield f"{text}: {row}"


def _is_object_of_texts(text: str | None) -> bool:
    if text is None:
        return True
    found = json.loads(text)
    return isinstance(found, dict) and all(isinstance(each, str) for each in found.values())
