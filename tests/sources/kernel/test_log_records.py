"""The lines that drivers write, and those that look like them."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sources.kernel.log_records import Record, Xid, record, xid
from tests.sources.kernel.logs import USER
from tests.sources.kernel.logs import record as written

BUS = "0000:3b:00.0"

LINES = {
    "a driver of today, of a process": (
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU",
        Xid(BUS, 31, 79749, "exe"),
    ),
    "of a GPU instance": (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 94, pid=7194, name=python, Contained: CE User",
        Xid(BUS, 94, 7194, "python"),
    ),
    "of a compute instance": (
        "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 13, pid=7194, name=python3.11, Graphics",
        Xid(BUS, 13, 7194, "python3.11"),
    ),
    "a newer driver that knows no process": (
        "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        Xid(BUS, 79, None, ""),
    ),
    "an older one that knows none": (
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off",
        Xid(BUS, 79, None, ""),
    ),
    "without quotes": (
        "NVRM: Xid (PCI:0000:3b:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error",
        Xid(BUS, 74, None, ""),
    ),
    "a process without a name": (
        "NVRM: Xid (PCI:0000:3b:00): 62, pid=1122, 1b59(2f20) 00000000 00000000",
        Xid(BUS, 62, 1122, ""),
    ),
    "a process whose name isn't known": (
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=1122, name=<unknown>, Ch 00000008",
        Xid(BUS, 45, 1122, ""),
    ),
    "nothing behind the process": (
        "NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, name=python",
        Xid(BUS, 13, 1234, "python"),
    ),
    "an empty message": (
        "NVRM: Xid (PCI:0000:3b:00): 109, pid=1234, name=python, ",
        Xid(BUS, 109, 1234, "python"),
    ),
    "caused by another": (
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=1, name=a b, Ch 0000001c caused by previous Xid 31",
        Xid(BUS, 45, 1, "a b"),
    ),
    "the driver's own number": (
        "NVRM: Xid (PCI:0000:3b:00): 45, pid=0, name=<unknown>, Ch 00000008",
        Xid(BUS, 45, None, ""),
    ),
    "an old driver": (
        "NVRM: Xid (0000:3b:00): 14, Channel 00000001",
        Xid(BUS, 14, None, ""),
    ),
    "with a function": (
        "NVRM: Xid (PCI:0000:3b:00.0): 119, pid=5678, name=nv-hostengine, Timeout after 45s",
        Xid(BUS, 119, 5678, "nv-hostengine"),
    ),
    "in a large domain": (
        "NVRM: Xid (PCI:10000:AF:1f): 48, pid=5, name=a, DBE (double bit error)",
        Xid("10000:af:1f.0", 48, 5, "a"),
    ),
    "the code alone": ("NVRM: Xid (PCI:0000:3b:00): 8", Xid(BUS, 8, None, "")),
}


@pytest.mark.parametrize(("line", "expected"), LINES.values(), ids=LINES)
def test_lines_of_drivers(line: str, expected: Xid) -> None:
    assert xid(line.encode()) == expected


STRANGE = {
    "of a switch": "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32",
    "of the bus": "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
    "quoted": "audit: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "no code": "NVRM: Xid (PCI:0000:3b:00): , pid=1, name=python",
    "the code 0": "NVRM: Xid (PCI:0000:3b:00): 0, pid=1, name=python",
    "a code that is none": "NVRM: Xid (PCI:0000:3b:00): 70000, pid=1, name=python",
    "a code with a letter": "NVRM: Xid (PCI:0000:3b:00): 79x, pid=1, name=python",
    "no place": "NVRM: Xid (): 79, GPU has fallen off the bus.",
    "a place that is none": "NVRM: Xid (PCI:zzzz:3b:00): 79, GPU has fallen off the bus.",
    "digits of another script": "NVRM: Xid (PCI:0000:3b:00): ٧٩, GPU has fallen off the bus.",
    "cut": "NVRM: Xid (PCI:0000:3b:0",
}


@pytest.mark.parametrize("line", STRANGE.values(), ids=STRANGE)
def test_what_looks_like_one(line: str) -> None:
    assert xid(line.encode()) is None


def test_a_process_can_t_pretend_another_by_its_name() -> None:
    """Whoever may start a program may call it anything."""
    found = xid(b"NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=): 79, pid=1, name=init, Ch 1")
    assert found == Xid(BUS, 31, 7, "): 79")


def test_a_name_is_short_and_on_one_line() -> None:
    text = f"NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=a\x1b[2J\u202e{'b' * 200}, Ch 1"
    found = xid(text.encode())
    assert found is not None
    assert found.process.isprintable()
    assert len(found.process) < 70


LINE = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def test_a_record_is_its_first_line() -> None:
    assert record(written(7, 42, LINE)) == Record(7, 42, LINE.encode())


def test_what_isn_t_the_kernel_s_own_word_is_passed_over() -> None:
    """A process may write whatever it likes, but not as the kernel."""
    for facility in (USER, 2, 3, 16, 23, 124, 125, 255):
        assert record(written(7, 42, LINE, facility=facility)) == Record(7, 42, b"")


def test_other_lines_of_the_kernel_are_passed_over() -> None:
    assert record(written(7, 42, "usb 1-1: new device")) == Record(7, 42, b"")


def test_a_line_within_a_record_is_no_record() -> None:
    assert record(f"6,8,43,-;hello\n {LINE}\n".encode()) == Record(8, 43, b"")
    assert record(f"6,8,43,-;hello\\x0a{LINE}\n".encode()) == Record(8, 43, b"")


def test_a_prefix_may_report_more() -> None:
    data = f"3,9,44,c,caller=T1234;{LINE}\n".encode()
    assert record(data) == Record(9, 44, LINE.encode())


@pytest.mark.parametrize("data", [b"", b";", b"\n", b"3,x,1,-;a", b"3,1;a", b"abc", b"3,1,2,-"])
def test_what_is_no_record(data: bytes) -> None:
    assert record(data) is None


@given(st.binary(max_size=300))
def test_no_bytes_upset_it(data: bytes) -> None:
    record(data)
    xid(data)
    xid(b"NVRM: Xid (PCI:0000:3b:00): 31, " + data)


@given(
    pid=st.integers(1, 4_194_304),
    name=st.text(string.ascii_letters + string.digits + "._-:/()", min_size=1, max_size=15),
    code=st.integers(1, 65535),
)
def test_what_is_written_is_read(pid: int, name: str, code: int) -> None:
    line = f"NVRM: Xid (PCI:0000:3b:00): {code}, pid={pid}, name={name}, Ch 00000001"
    assert xid(line.encode()) == Xid(BUS, code, pid, name)
