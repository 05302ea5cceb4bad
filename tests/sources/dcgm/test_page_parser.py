"""Parsing of dcgm-exporter's page: lines, devices, values, duplicates and attributes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.model import Device
from sources.dcgm.page_parser import Reason
from tests.sources.dcgm.reading import A, B, by_series, line, plain, read

CLOCK, SM = "DCGM_FI_DEV_SM_CLOCK", "sm_clock_mhz"
USED = "DCGM_FI_DEV_FB_USED"


class TestLines:
    @pytest.mark.parametrize(
        "text",
        [
            f'{CLOCK}{{UUID="{A}"}} 7',
            f'  {CLOCK} {{ UUID = "{A}" , }}  7  ',
            f'{CLOCK}{{UUID="{A}"}}\t7\t1700000000000',
            f'{CLOCK}{{UUID="{A}",}} 7\r',
            f'{CLOCK}{{modelName="a}} b",UUID="{A}"}} 7.0',
            f'{CLOCK}{{modelName="a\\"b\\\\",UUID="{A}"}} +7',
            f'{CLOCK}{{modelName="a,b=\\n\\d",UUID="{A}"}} 0.7e1',
            f'{CLOCK}{{UUID="{A}",pod="x",UUID="{B}"}} 7',
        ],
    )
    def test_valid_lines_are_read(self, text: str) -> None:
        found = read(text)
        assert plain(found) == {SM: 7}
        assert not found.dropped

    @pytest.mark.parametrize(
        "text",
        [
            f'{CLOCK}{{UUID="{A}"}}',
            f'{CLOCK}{{UUID="{A}"}} seven',
            f'{CLOCK}{{UUID="{A}"}} 1_0',
            f'{CLOCK}{{UUID="{A}"}} 0x7',
            f'{CLOCK}{{UUID="{A}"}} 7 8 9',
            f'{CLOCK}{{UUID="{A}"}} 7 soon',
            f'{CLOCK}{{UUID="{A}" 7',
            f'{CLOCK}{{UUID="{A}}} 7',
            f"{CLOCK}{{UUID={A}}} 7",
            f'{CLOCK}{{UUID="{A}" modelName="b"}} 7',
            f'{CLOCK}{{modelName="a"b",UUID="{A}"}} 7',
            f'{CLOCK}{{UUID="{A}",modelName="{"x" * (1 << 16)}"}} 7',
            f"{CLOCK}-{{}} 7",
            CLOCK,
        ],
    )
    def test_a_malformed_line_is_dropped_and_the_other_lines_are_read(self, text: str) -> None:
        found = read(f"{line(CLOCK, 1, 0)}{text}\n{line(CLOCK, 2, 1)}")
        assert by_series(found) == {(A, SM, ()): 1, (B, SM, ()): 2}
        assert found.dropped == {"malformed": 1}
        assert found.examples["malformed"].startswith("line 2: DCGM_FI_DEV_SM_CLOCK")
        assert len(found.examples["malformed"]) < 200

    def test_lines_of_other_exporters_are_ignored(self) -> None:
        found = read('# HELP\n# TYPE x\n#\n\nup 1\nnode_load1{ 3\ngo_info{version="go1"} 1\n')
        assert found.empty
        assert not found.dropped


class TestDevices:
    @pytest.mark.parametrize("label", ["UUID", "uuid", "gpu_uuid"])
    def test_each_spelling_of_the_uuid_label_is_known(self, label: str) -> None:
        assert plain(read(f'{CLOCK}{{gpu="0",{label}="{A}"}} 7')) == {SM: 7}

    def test_the_labels_of_all_lines_of_a_gpu_are_combined(self) -> None:
        found = read(
            line(CLOCK, 1, 0, DCGM_FI_DEV_BRAND="NVIDIA")
            + line(USED, 1, 0, modelName="H100", DCGM_FI_DEV_VBIOS_VERSION="96.00", pci_bus_id="1")
            + line(USED, 1, 0, modelName="H200", device="nvidia3", DCGM_FI_DEV_SERIAL="<<<NULL>>>")
        )
        facts = (("brand", "NVIDIA"), ("vbios_version", "96.00"))
        assert found.devices == (Device(A, 0, 3, "1", "H100", facts=facts),)

    @pytest.mark.parametrize(
        "labels",
        ['gpu="1"', 'pci_bus_id="00000000:02:00.0"', 'gpu="",pci_bus_id="00000000:02:00.0"'],
    )
    def test_a_line_without_a_uuid_is_matched_by_gpu_number_or_bus_id(self, labels: str) -> None:
        found = read(
            f"{CLOCK}{{{labels}}} 7\n"
            + line(USED, 1, 0)
            + line(USED, 1, 1, pci_bus_id="00000000:02:00.0")
        )
        assert plain(found, B)[SM] == 7
        assert SM not in plain(found, A)

    @pytest.mark.parametrize("labels", ['gpu="4"', "", 'UUID="<<<NULL>>>"', 'UUID="MIG-x",gpu="7"'])
    def test_a_line_of_an_unknown_gpu_is_dropped(self, labels: str) -> None:
        found = read(f"{CLOCK}{{{labels}}} 7\n" + line(CLOCK, 1))
        assert plain(found) == {SM: 1}
        assert found.dropped == {"no_device": 1}

    def test_lines_of_links_switches_and_cpus_are_ignored(self) -> None:
        name = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
        found = read(
            f'{name}{{nvlink="0",gpu="0",gpu_uuid="{A}"}} 1\n{name}{{nvswitch="0"}} 2\n'
            f'{CLOCK}{{cpu="0"}} 3\n{CLOCK}{{cpucore="0",cpu="0"}} 4\n'
        )
        assert (found.devices, found.readings, found.dropped) == ((), (), {})

    @pytest.mark.parametrize("label", ["cpu", "nvlink", "nvswitch"])
    def test_a_pod_label_named_cpu_or_nvlink_does_not_hide_the_line(self, label: str) -> None:
        assert plain(read(line(CLOCK, 7, 0, **{label: "8"}))) == {SM: 7}

    @pytest.mark.parametrize("gi", ["", "x", "-1", "1.5", "9999999999"])
    def test_an_invalid_gpu_instance_id_is_ignored(self, gi: str) -> None:
        assert plain(read(line(CLOCK, 7, 0, GPU_I_ID=gi))) == {SM: 7}

    def test_an_instance_is_found_by_the_number_of_its_gpu(self) -> None:
        found = read(f'{USED}{{gpu="0",GPU_I_ID="3",GPU_I_PROFILE="1g"}} 7\n' + line(CLOCK, 1))
        assert plain(found, f"MIG-{A}/3") == {"memory_used_bytes": 7 << 20}
        assert found.devices[1].uuid == f"MIG-{A}/3"

    def test_what_only_the_whole_gpu_has_belongs_to_the_gpu(self) -> None:
        """dcgm-exporter repeats it for each instance, perhaps with values of different moments."""
        lines = [line(CLOCK, 7 + at, 0, GPU_I_ID=str(at), pod="a") for at in range(2)]
        found = read("".join([*lines, line(USED, 1, 0, GPU_I_ID="1", pod="a")]))
        assert plain(found) == {SM: 7}
        assert plain(found, f"MIG-{A}/0") == {}
        assert plain(found, f"MIG-{A}/1") == {"memory_used_bytes": 1 << 20}
        assert not found.dropped


BLANK32, BLANK64, BLANK_FLOAT = (1 << 31) - 16, (1 << 63) - 16, 1 << 47


class TestValues:
    @pytest.mark.parametrize(
        ("name", "value", "reason"),
        [
            *((CLOCK, BLANK32 + kind, "blank") for kind in range(4)),
            *((CLOCK, BLANK64 + kind, "blank") for kind in range(4)),
            *((CLOCK, f"{BLANK_FLOAT + kind}.000000", "blank") for kind in range(4)),
            (CLOCK, "9.223372036854776e+18", "blank"),
            (CLOCK, (1 << 64) - 1, "blank"),
            (CLOCK, "NaN", "blank"),
            (CLOCK, "+Inf", "blank"),
            (CLOCK, "-Inf", "blank"),
            (CLOCK, "1e999", "blank"),
            (USED, 17592186044415, "out_of_range"),
            (USED, -1, "out_of_range"),
            ("DCGM_FI_DEV_GPU_UTIL", 101, "out_of_range"),
            ("DCGM_FI_DEV_PSTATE", 32, "out_of_range"),
            ("DCGM_FI_PROF_SM_ACTIVE", 1.5, "out_of_range"),
            ("DCGM_FI_DEV_POWER_USAGE", 1e9, "out_of_range"),
        ],
    )
    def test_blank_and_impossible_values_are_dropped_and_counted(
        self, name: str, value: object, reason: Reason
    ) -> None:
        found = read(line(name, value) + line("DCGM_FI_DEV_GPU_TEMP", 40))
        assert plain(found) == {"gpu_temperature_celsius": 40}
        assert found.dropped == {reason: 1}

    def test_large_counters_keep_their_precision(self) -> None:
        found = read(line("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", (1 << 60) + 1))
        assert plain(found) == {"energy_millijoules": (1 << 60) + 1}

    @pytest.mark.parametrize(
        ("name", "kind", "from_podgpu", "field"),
        [
            ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", False, "pcie_transmit_bytes_per_second"),
            ("DCGM_FI_PROF_PCIE_TX_BYTES", "counter", False, "pcie_transmit_bytes_per_second"),
            ("DCGM_FI_PROF_PCIE_TX_BYTES", "", False, "pcie_transmit_bytes_per_second"),
            ("dcgm_fi_prof_pcie_rx_bytes", "counter", False, "pcie_receive_bytes_per_second"),
            ("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", True, "pcie_transmit_bytes_per_second"),
            ("DCGM_FI_PROF_PCIE_TX_BYTES", "counter", True, "pcie_transmitted_bytes"),
            ("dcgm_fi_prof_pcie_rx_bytes", "counter", True, "pcie_received_bytes"),
        ],
    )
    def test_a_pcie_metric_of_dcgm_exporter_is_always_a_rate(
        self, name: str, kind: str, from_podgpu: bool, field: str
    ) -> None:
        """DCGM has only the rate, whatever type its exporter declares. podgpu has both."""
        text = line(name, 7)
        if kind:
            text = f"# TYPE {name} {kind}\n{text}"
        if from_podgpu:
            text += line("podgpu_gpu_up", 1)
        assert {f for f in plain(read(text)) if f.startswith("pcie")} == {field}


class TestCopies:
    """dcgm-exporter writes a series for each of the pods that share a GPU."""

    def test_a_value_without_a_pod_takes_precedence(self) -> None:
        found = read(
            line("DCGM_FI_DEV_GPU_UTIL", 10, 0, pod="a", vgpu="0")
            + line("DCGM_FI_DEV_GPU_UTIL", 30, 0, pod="b", vgpu="1")
            + line("DCGM_FI_DEV_GPU_UTIL", 40)
        )
        assert plain(found) == {"gpu_utilization_percent": 40}
        assert not found.dropped

    def test_equal_copies_result_in_one_value(self) -> None:
        found = read("".join(line(CLOCK, 1980, 0, pod=pod, vgpu=pod) for pod in "abc"))
        assert plain(found) == {SM: 1980}

    def test_copies_that_differ_are_dropped_as_contradictory(self) -> None:
        found = read(line(CLOCK, 1, 0, vgpu="0") + line(CLOCK, 2, 0, vgpu="1") + line(USED, 5))
        assert plain(found) == {"memory_used_bytes": 5 << 20}
        assert found.dropped == {"contradictory": 1}

    def test_the_first_of_two_lines_of_one_series_is_used(self) -> None:
        assert plain(read(line(CLOCK, 1, 0, pod="a") + line(CLOCK, 2, 0, pod="b"))) == {SM: 1}


class TestAttributes:
    def test_only_attributes_of_the_catalogue_are_kept(self) -> None:
        found = read(
            line("DCGM_EXP_P2P_STATUS", 0, 0, peer_gpu="1", link_status="OK", pod="a", x="y")
            + line("DCGM_FI_DEV_XID_ERRORS", 79, 0, err_code="79", err_msg="lost")
        )
        assert by_series(found) == {
            (A, "p2p_status", (("link_status", "OK"), ("peer_gpu", "1"))): 0,
            (A, "xid_last", ()): 79,
        }


SOUP = st.lists(
    st.one_of(
        st.sampled_from(
            ["DCGM_FI_DEV_SM_CLOCK", "dcgm_fb_used", "podgpu_gpu_up", "{", "}", '"', ",", "=", "\\"]
        ),
        st.sampled_from(
            ["\n", " ", "\t", "\r", "# TYPE ", 'UUID="GPU-1"', 'GPU_I_ID="1"', "0", "1e9"]
        ),
        st.text(max_size=3),
    ),
    max_size=60,
)


@given(
    st.one_of(
        st.binary(max_size=200), SOUP.map(lambda parts: "".join(parts).encode("utf-8", "replace"))
    )
)
@example(b"DCGM_{" + b"} " * 10_000)
@example(b'DCGM_{a="' + b"\\" * 30_001)
@example(b"DCGM_ " + b"9" * 60_000)
def test_arbitrary_bytes_do_not_fail(data: bytes) -> None:
    found = read(data)
    known = {device.uuid for device in found.devices}
    assert {reading.device for reading in found.readings} <= known
