"""Parsing of kernel log records: XID lines of drivers, and lines that only look like them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.kernel.log_records import Record, Xid, record, xid
from tests.sources.kernel.logs import USER
from tests.sources.kernel.logs import record as kmsg_record

BUS = "0000:3b:00.0"

LINES = {
    "current driver, with a process": (
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU",
        Xid(BUS, 31, 79749, "exe"),
    ),
    "GPU instance": (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, name=python, Contained: CE User",
        Xid(BUS, 94, 7194, "python"),
    ),
    "compute instance": (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 13, pid=7194, name=python3.11, Graphics",
        Xid(BUS, 13, 7194, "python3.11"),
    ),
    "current driver, without a process": (
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        Xid(BUS, 79, None, ""),
    ),
    "older driver, unknown process in quotes": (
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
        Xid(BUS, 79, None, ""),
    ),
    "older driver, unknown process without quotes": (
        "NVRM: Xid (PCI:0000:3b:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error",
        Xid(BUS, 74, None, ""),
    ),
    "a process without a name": (
        "NVRM: Xid (PCI:0000:3b:00): 62, pid=1122, 1b59(2f20) 00000000 00000000",
        Xid(BUS, 62, 1122, ""),
    ),
    "a process with an unknown name": (
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=1122, name=<unknown>, Ch 00000008",
        Xid(BUS, 45, 1122, ""),
    ),
    "nothing after the process": (
        "NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, name=python",
        Xid(BUS, 13, 1234, "python"),
    ),
    "an empty message": (
        "NVRM: Xid (PCI:0000:3b:00): 109, pid=1234, name=python, ",
        Xid(BUS, 109, 1234, "python"),
    ),
    "caused by a previous XID": (
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=a b, Ch 0000001c caused by previous Xid 31",
        Xid(BUS, 45, 1, "a b"),
    ),
    "pid 0": (
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=0, name=<unknown>, Ch 00000008",
        Xid(BUS, 45, None, ""),
    ),
    "old driver without PCI prefix": (
        "NVRM: Xid (0000:3b:00): 14, Channel 00000001",
        Xid(BUS, 14, None, ""),
    ),
    "bus id with a function": (
        "NVRM: Xid (PCI:0000:3b:00.0): 119, pid=5678, name=nv-hostengine, Timeout after 45s",
        Xid(BUS, 119, 5678, "nv-hostengine"),
    ),
    "PCI domain with five digits": (
        "NVRM: Xid (PCI:10000:AF:1f): 48, pid=5, name=a, DBE (double bit error)",
        Xid("10000:af:1f.0", 48, 5, "a"),
    ),
    "only the code": ("NVRM: Xid (PCI:0000:3b:00): 8", Xid(BUS, 8, None, "")),
}


@pytest.mark.parametrize(("line", "expected"), LINES.values(), ids=LINES)
def test_xid_lines_of_drivers_are_parsed(line: str, expected: Xid) -> None:
    assert xid(line.encode()) == expected


NOT_XIDS = {
    "an NVSwitch error": "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32",
    "another message of the driver": "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
    "quoted by audit": "audit: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "no code": "NVRM: Xid (PCI:0000:3b:00): , pid=1, name=python",
    "the code 0": "NVRM: Xid (PCI:0000:3b:00): 0, pid=1, name=python",
    "a code that is too high": "NVRM: Xid (PCI:0000:3b:00): 70000, pid=1, name=python",
    "a code with a letter": "NVRM: Xid (PCI:0000:3b:00): 79x, pid=1, name=python",
    "no bus id": "NVRM: Xid (): 79, GPU has fallen off the bus.",
    "an invalid bus id": "NVRM: Xid (PCI:zzzz:3b:00): 79, GPU has fallen off the bus.",
    "digits of another script": "NVRM: Xid (PCI:0000:3b:00): ٧٩, GPU has fallen off the bus.",
    "truncated": "NVRM: Xid (PCI:0000:3b:0",
}


@pytest.mark.parametrize("line", NOT_XIDS.values(), ids=NOT_XIDS)
def test_similar_lines_are_no_xid(line: str) -> None:
    assert xid(line.encode()) is None


def test_a_process_name_cannot_fake_another_xid_or_pid() -> None:
    """A user who may start a program can give it any name."""
    found = xid(b"NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=): 79, pid=1, name=init, Ch 1")
    assert found == Xid(BUS, 31, 7, "): 79")


def test_a_process_name_is_made_printable_and_short() -> None:
    text = f"NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=a\x1b[2J\u202e{'b' * 200}, Ch 1"
    found = xid(text.encode())
    assert found is not None
    assert found.process.isprintable()
    assert len(found.process) < 70


LINE = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def test_only_the_first_line_of_a_record_is_used() -> None:
    assert record(kmsg_record(7, 42, LINE)) == Record(7, 42, LINE.encode())


def test_records_of_other_facilities_than_the_kernel_are_ignored() -> None:
    """A process can write any text to the log, but not with the facility of the kernel."""
    for facility in (USER, 2, 3, 16, 23, 124, 125, 255):
        assert record(kmsg_record(7, 42, LINE, facility=facility)) == Record(7, 42, b"")


def test_other_messages_of_the_kernel_are_ignored() -> None:
    assert record(kmsg_record(7, 42, "usb 1-1: new device")) == Record(7, 42, b"")


def test_an_xid_line_inside_another_record_is_ignored() -> None:
    assert record(f"6,8,43,-;hello\n {LINE}\n".encode()) == Record(8, 43, b"")
    assert record(f"6,8,43,-;hello\\x0a{LINE}\n".encode()) == Record(8, 43, b"")


def test_additional_prefix_fields_are_accepted() -> None:
    data = f"3,9,44,c,caller=T1234;{LINE}\n".encode()
    assert record(data) == Record(9, 44, LINE.encode())


@pytest.mark.parametrize("data", [b"", b";", b"\n", b"3,x,1,-;a", b"3,1;a", b"abc", b"3,1,2,-"])
def test_malformed_records_are_refused(data: bytes) -> None:
    assert record(data) is None


@given(st.binary(max_size=300))
def test_arbitrary_bytes_do_not_fail(data: bytes) -> None:
    record(data)
    xid(data)
    xid(b"NVRM: Xid (PCI:0000:3b:00): 31, " + data)


@given(
    pid=st.integers(1, 4_194_304),
    name=st.text(string.ascii_letters + string.digits + "._-:/()", min_size=1, max_size=15),
    code=st.integers(1, 65535),
)
def test_code_pid_and_name_are_read_as_written(pid: int, name: str, code: int) -> None:
    line = f"NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, name={name}, Ch 00000001"
    assert xid(line.encode()) == Xid(BUS, code, pid, name)
