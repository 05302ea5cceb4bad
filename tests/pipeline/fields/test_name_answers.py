"""What podgpu says about a name that no field has; it never means another quantity."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fields import all_words, called
from pipeline.fields.dcgm_names import dcgm_names
from pipeline.fields.name_answers import NameAnswers
from pipeline.fields.unavailable_names import OF_DCGM_EXPORTER, unavailable_reason

ANSWERS = NameAnswers()
TABLE = {entry.name: entry.id for entry in dcgm_names()}
KNOWN = (*TABLE, *OF_DCGM_EXPORTER, *all_words())
UNKNOWN = "is no known field"
LISTED = f"{UNKNOWN}; podgpu fields lists all fields"


def reason(name: str) -> str:
    found = unavailable_reason(name)
    assert found is not None
    return found.text


def same_quantity(one: str, other: str) -> bool:
    fields = list(called(one))
    if fields or list(called(other)):
        return fields == list(called(other))
    return one == other or (one in TABLE and TABLE[one] == TABLE.get(other))


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("DCGM_FI_DEV_GPU_UTL", "is no known field; did you mean DCGM_FI_DEV_GPU_UTIL?"),
        ("DCGM_FI_DEV_GPU_UITL", "is no known field; did you mean DCGM_FI_DEV_GPU_UTIL?"),
        ("DCGM_FI_DEV_GPU_UTTIL", "is no known field; did you mean DCGM_FI_DEV_GPU_UTIL?"),
        ("DCGM_FI_DEV_GPU_UTIK", "is no known field; did you mean DCGM_FI_DEV_GPU_UTIL?"),
        ("dcgm_fi_dev_gpu_util", "is no known field; did you mean DCGM_FI_DEV_GPU_UTIL?"),
        ("memory_used_byte", "is no known field; did you mean memory_used_bytes?"),
        (
            "DCGM_FI_DEV_PCI_BUSSID",
            f"{UNKNOWN}; DCGM_FI_DEV_PCI_BUSID {reason('DCGM_FI_DEV_PCI_BUSID')}",
        ),
        (
            "DCGM_EXP_GPU_HEALTH_STATU",
            f"{UNKNOWN}; DCGM_EXP_GPU_HEALTH_STATUS {reason('DCGM_EXP_GPU_HEALTH_STATUS')}",
        ),
        # Another number, another quantity, or several that are as similar.
        ("DCGM_FI_DEV_NVLINK_BANDWIDTH_L18", LISTED),
        ("DCGM_FI_PROF_NVDEC8_ACTIVE", LISTED),
        ("DCGM_FI_PROF_NVDEC_ACTIVE", LISTED),
        ("DCGM_FI_PROF_PCIE_X_BYTES", LISTED),
        ("DCGM_FI_DEV_MIN_SM_CLOCK", LISTED),
        ("DCGM_FI_DEV_OFA_UTIL", LISTED),
        ("DCGM_FI_DEV_FOO_BAR", LISTED),
        ("", LISTED),
        ("x" * 1_000_000, LISTED),
    ],
)
def test_an_answer(name: str, answer: str) -> None:
    assert ANSWERS.about(name) == answer


def test_nothing_is_guessed_unless_asked_for() -> None:
    assert ANSWERS.about("DCGM_FI_DEV_GPU_UTL", guess=False) == LISTED
    assert ANSWERS.about("DCGM_FI_DEV_UUID", guess=False).startswith("is not available: ")


def test_a_name_of_dcgm_is_never_taken_for_another_one() -> None:
    for name in TABLE:
        if not list(called(name)):
            assert ANSWERS.about(name) == reason(name)


ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"


@st.composite
def slips(draw: st.DrawFn) -> tuple[str, str]:
    """Return a known name, and the name with one letter wrong, missing, added or swapped."""
    name = draw(st.sampled_from(KNOWN))
    at = draw(st.integers(0, len(name) - 1))
    letter = draw(st.sampled_from(ALPHABET))
    head, one, tail = name[:at], name[at], name[at + 1 :]
    kind = draw(st.sampled_from(("wrong", "missing", "added", "swapped")))
    changed = {
        "wrong": head + letter + tail,
        "missing": head + tail,
        "added": head + letter + one + tail,
        "swapped": head + tail[:1] + one + tail[1:],
    }
    return name, changed[kind]


@given(slips())
def test_a_slip_is_never_taken_for_another_quantity(slip: tuple[str, str]) -> None:
    """Unless the slip made it the name of another quantity, whose answer it then has."""
    name, written = slip
    meant = ANSWERS.misspelt(written)
    if meant and written not in KNOWN and meant.lower() != written.lower():
        assert same_quantity(meant, name)
        assert re.findall(r"\d+", meant) == re.findall(r"\d+", written)


@given(slips())
def test_a_slip_that_can_mean_one_quantity_only_is_recognised(slip: tuple[str, str]) -> None:
    name, written = slip
    if re.findall(r"\d+", name) != re.findall(r"\d+", written) or not written.isascii():
        return
    meant = ANSWERS.misspelt(written)
    near = {
        other
        for other in KNOWN
        if abs(len(other) - len(written)) <= 1 and not same_quantity(other, name)
    }
    if not any(_one_slip(other.lower(), written.lower()) for other in near):
        assert same_quantity(meant, name), (name, written)


def _one_slip(one: str, other: str) -> bool:
    """Whether two words differ in one letter at most, by a slower method than the module's."""
    if one == other:
        return True
    if len(one) == len(other):
        differing = [at for at in range(len(one)) if one[at] != other[at]]
        if len(differing) == 2:
            a, b = differing
            return b == a + 1 and (one[a], one[b]) == (other[b], other[a])
        return len(differing) == 1
    short, long = sorted((one, other), key=len)
    return any(short == long[:at] + long[at + 1 :] for at in range(len(long)))


@given(st.text(max_size=90))
def test_any_text_has_an_answer(text: str) -> None:
    assert ANSWERS.about(text).startswith("is ")
