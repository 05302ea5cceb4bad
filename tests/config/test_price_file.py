"""The price file: what it can contain, and how a mistake is reported."""

import textwrap
from pathlib import Path

import pytest

from config.errors import ConfigError
from config.loader import parse_struct
from config.price_file import PriceFile, load_prices

WHOLE = """
currency: EUR
tz: Europe/Berlin
gpu_hour:
  - model: NVIDIA H200
    cluster: prod-*
    prices:
      2026-01-01: 2.50
      2026-10-01: 2.80
  - model: "*"
    prices: {2026-01-01: 1}
free_gpu_hour:
  - prices: {2026-01-01: 0.40}
kwh:
  - prices: {2026-01-01: 0.31}
"""


def test_a_price_is_read_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(WHOLE)
    file = load_prices(path)
    assert (file.currency, file.tz) == ("EUR", "Europe/Berlin")
    first, second = file.gpu_hour
    assert (first.model, first.cluster) == ("NVIDIA H200", "prod-*")
    assert first.prices == {"2026-01-01": "2.50", "2026-10-01": "2.80"}
    assert (second.model, second.cluster, second.prices) == ("*", "*", {"2026-01-01": "1"})
    assert file.free_gpu_hour[0].prices == {"2026-01-01": "0.40"}
    assert file.unknown_gpu_hour == ()
    assert file.kwh[0].prices == {"2026-01-01": "0.31"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("currency: EUR", "prices.yaml:1:1: no price: add an entry to gpu_hour or to kwh, or both"),
        ("kwh: [{prices: {2026-01-01: 0.31}}]", "prices.yaml:1:1: currency: this key is missing"),
        (
            "currency: Euro\nkwh: [{prices: {2026-01-01: 0.31}}]",
            'prices.yaml:1:11: currency: "Euro" does not fit; it must match',
        ),
        (
            "currency: EUR\ntz: Berlin\nkwh: [{prices: {2026-01-01: 0.31}}]",
            'prices.yaml:2:5: tz: "Berlin" is not a time zone; did you mean',
        ),
        (
            "currency: EUR\nkwh:\n  - prices:\n      2026-02-30: 0.31",
            "prices.yaml:4:19: kwh[0].prices.2026-02-30: there is no day 2026-02-30",
        ),
        (
            "currency: EUR\nkwh:\n  - prices:\n      january: 0.31",
            (
                "prices.yaml:4:16: kwh[0].prices.january: the key is not a day; write the day from "
                "which the price is valid: 2026-01-01: 2.50"
            ),
        ),
        (
            "currency: EUR\nkwh:\n  - prices:\n      20260101: 0.31",
            "prices.yaml:4:17: kwh[0].prices.20260101: the key is not a day",
        ),
        (
            "currency: EUR\nkwh:\n  - prices:\n      1066-10-14: 0.31",
            "kwh[0].prices.1066-10-14: the year is not from 1970 to 9998",
        ),
        (
            "currency: EUR\ngpu_hour:\n  - model: L4\n    prices:\n      2026-01-01: -1",
            'prices.yaml:5:19: gpu_hour[0].prices.2026-01-01: "-1" is not a price; write a number',
        ),
        (
            "currency: EUR\ngpu_hour:\n  - model: L4\n    prices:\n      2026-01-01: 2,50",
            '"2,50" is not a price; write a number of 0 or more, such as 2.50',
        ),
        (
            "currency: EUR\ngpu_hour:\n  - model: L4\n    prices:\n      2026-01-01:",
            "prices.yaml:5:18: gpu_hour[0].prices.2026-01-01: expected a text, found nothing",
        ),
        (
            "currency: EUR\ngpu_hour:\n  - model: L4\n    prices: 2.50",
            'prices.yaml:4:13: gpu_hour[0].prices: expected a mapping, found the number "2.50"',
        ),
        (
            "currency: EUR\ngpu_hour:\n  - model: L4\n    prices: {}",
            "gpu_hour[0].prices: the mapping is too short; it needs 1 or more entries",
        ),
        (
            "currency: EUR\ngpu_hour:\n  - modle: L4\n    prices: {2026-01-01: 1}",
            'prices.yaml:3:5: gpu_hour[0].modle: unknown key; did you mean "model"?',
        ),
        (
            (
                "currency: EUR\nkwh: [{prices: {2026-01-01: 1}}]\nfree_gpu_hour:\n"
                "  - prices: {2026-01-01: 1}"
            ),
            "prices.yaml:4:3: free_gpu_hour: there is no gpu_hour: add the prices of held time",
        ),
        (
            "currency: EUR\nkwh:\n  - prices: {2026-01-01: 1, 2026-01-01: 2}",
            "duplicate key, first on line 3; keep one of them",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_the_fix(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse_struct(text, PriceFile, origin="prices.yaml")
    assert message in str(found.value)


def test_each_mistake_of_a_file_is_reported_at_once() -> None:
    text = textwrap.dedent("""\
        currency: euro
        gpu_hour:
          - prices: {2026-13-01: x}
        """)
    with pytest.raises(ConfigError) as found:
        parse_struct(text, PriceFile, origin="prices.yaml")
    assert len(found.value.problems) == 3
