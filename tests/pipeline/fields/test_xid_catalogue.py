"""The catalogue of XID codes, and the page that lists it."""

import os
import re
from pathlib import Path
from typing import get_args

import pytest

from pipeline.fields.xid_catalogue import ADVICE, WATCHED, XIDS, Action, Xid, sentence

PAGE = Path(__file__).parents[3] / "docs" / "xid.md"
CODES = range(1, 173)
"""The codes of NVIDIA's catalogue."""


def with_table(page: str, title: str, rows: list[str]) -> str:
    """Return the page with these rows in the table of a section."""
    section = rf"(## {title}\n(?:(?!## |\|---).*\n)*\|---.*\n)(?:\|.*\n)*"
    made, count = re.subn(
        section, lambda found: "\n".join([found[1] + rows[0], *rows[1:], ""]), page
    )
    assert count == 1
    return made


def test_the_page_lists_the_catalogue() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes the tables of the page again."""
    actions = [f"| `{action}` | {advice} |" for action, advice in ADVICE.items()]
    codes = [
        f"| {code} | {known.meaning} | `{known.action}` | {known.alert} |"
        for code, known in XIDS.items()
    ]
    page = PAGE.read_text(encoding="utf-8")
    made = with_table(with_table(page, "Actions", actions), "Codes", codes)
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        PAGE.write_text(made, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == made


def test_every_code_of_nvidia_s_catalogue_is_described_once() -> None:
    assert list(XIDS) == list(CODES)
    meanings = [known.meaning for known in XIDS.values()]
    assert len(set(meanings)) == len(meanings)


def test_every_action_has_an_advice_and_is_used() -> None:
    assert tuple(ADVICE) == get_args(Action)
    assert {known.action for known in XIDS.values()} == set(ADVICE)


@pytest.mark.parametrize("known", XIDS.values())
def test_a_description_can_be_a_label_and_a_part_of_a_sentence(known: Xid) -> None:
    meaning = known.meaning
    assert meaning.isascii()
    assert meaning.isprintable()
    assert not set(meaning) & set('"\\;')
    assert meaning[0].isupper() or meaning[0].isdigit()
    assert not meaning.endswith(".")


def test_codes_with_a_counter_from_the_start_are_known() -> None:
    assert set(WATCHED) < set(XIDS)


def test_a_sentence_has_the_description_and_the_advice() -> None:
    assert sentence(79) == "GPU has fallen off the bus; advice: reboot the node"
    assert sentence(171).endswith("; advice: NVIDIA's catalogue names no action")
    assert sentence(4711) == ""
