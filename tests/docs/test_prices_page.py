"""`docs/prices.md` is correct: its price file is valid, and its tables name each key."""

import re

import pytest

from config.errors import ConfigError
from config.loader import parse_struct
from config.price_file import EnergyPrices, HourPrices, PriceFile
from tests.docs.pages import DOCS, blocks, text_of

PAGE = DOCS / "prices.md"
(FILE,) = blocks(PAGE, "yaml")


def test_the_price_file_is_valid() -> None:
    found = parse_struct(FILE, PriceFile, origin="prices.yaml")
    assert found.gpu_hour
    assert found.free_gpu_hour
    assert found.kwh


def test_the_tables_name_each_key() -> None:
    keys = {key for shape in (PriceFile, HourPrices, EnergyPrices)
            for key in shape.__struct_fields__}  # fmt: skip
    assert set(re.findall(r"^\| `(\w+)` \|", text_of(PAGE), re.MULTILINE)) == keys


def test_the_error_is_that_of_the_file_with_a_comma() -> None:
    with pytest.raises(ConfigError) as found:
        parse_struct(FILE.replace("2.80", '"2,80"'), PriceFile, origin="prices.yaml")
    (error,) = [block for block in blocks(PAGE, "") if block.startswith("prices.yaml:")]
    assert f"{found.value}" == error.strip()
