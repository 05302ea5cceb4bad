"""The names by which fields are found. Those of DCGM's catalogue are in `test_dcgm_names`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fields import CATALOGUE, LABELS, all_words, called

EVERY = (*CATALOGUE, *LABELS)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL", "pcie_transmitted_bytes"),
        ("DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL", "pcie_received_bytes"),
        ("DCGM_EXP_XID_ERRORS_TOTAL", "xid_errors"),
        ("DCGM_FI_DEV_POWER_USAGE_INSTANT", "power_instant_watts"),
        ("DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", "power_instant_watts"),
        ("DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "recovery_action"),
        ("DCGM_FI_DEV_GPU_RECOVERY_ACTION", "recovery_action"),
        ("DCGM_FI_DEV_NVLINK_GET_STATE", "nvlink_up"),
    ],
)
def test_dcgm_names_of_podgpu_fields(name: str, field: str) -> None:
    assert [found.name for found in called(name)] == [field]


def test_fields_with_a_common_name_differ_in_type() -> None:
    for word in all_words():
        types = [field.type for field in called(word)]
        assert len(types) == len(set(types)), word


@given(st.sampled_from(all_words()) | st.text(max_size=8))
def test_a_field_is_found_only_by_its_own_names(word: str) -> None:
    expected = [
        field for field in EVERY if word in {field.name, field.podgpu_metric, *field.dcgm_names}
    ]
    assert list(called(word)) == (expected if word else [])
