from pathlib import Path
from typing import Literal

import pytest

from pipeline.model import Evidence, Origin, PartialRef
from sources.podlist.document import BadDocumentError, read_pod_list

PATH = Path("podlist.json")
DEVICE = "expected a GPU uuid, a MIG uuid or a number"


def read(text: str | bytes, integers: Literal["minor", "index"] = "minor") -> dict[str, list[str]]:
    data = text.encode() if isinstance(text, str) else text
    listed = read_pod_list(data, PATH, integers)
    return {
        f"{c.subject.namespace}/{c.subject.pod}/{c.subject.container}": [
            f"{d.scheme}:{d.text}" for d in c.devices
        ]
        for c in listed.claims
    }


def pod(gpu_list: str, name: str = "p", more: str = "") -> str:
    return f'{{"name":"{name}","namespace":"n","container":"c","gpu_list":{gpu_list}{more}}}'


def listed(*pods: str) -> str:
    return "[" + ",".join(pods) + "]"


GOOD: dict[str, tuple[str | bytes, dict[str, list[str]]]] = {
    "nobody": ("[]", {}),
    "nobody, with space around": (" \r\n[ ]\n", {}),
    "gpu": (listed(pod('["GPU-0a1b"]')), {"n/p/c": ["uuid:GPU-0a1b"]}),
    "mig": (listed(pod('["MIG-0a1b"]')), {"n/p/c": ["uuid:MIG-0a1b"]}),
    "mig as old drivers wrote it": (
        listed(pod('["MIG-GPU-0a1b/7/0"]')),
        {"n/p/c": ["uuid:MIG-GPU-0a1b/7/0"]},
    ),
    "number": (listed(pod("[2]")), {"n/p/c": ["minor:2"]}),
    "zero": (listed(pod("[0]")), {"n/p/c": ["minor:0"]}),
    "number as text": (listed(pod('["2"]')), {"n/p/c": ["minor:2"]}),
    "leading zeros": (listed(pod('["007"]')), {"n/p/c": ["minor:7"]}),
    "largest minor": (listed(pod("[1048575]")), {"n/p/c": ["minor:1048575"]}),
    "same device twice": (
        listed(pod('["GPU-a", 2, "2", "GPU-a"]')),
        {"n/p/c": ["uuid:GPU-a", "minor:2"]},
    ),
    "same container twice": (
        listed(pod('["GPU-a"]'), pod("[1]", "q"), pod('["GPU-b","GPU-a"]')),
        {"n/p/c": ["uuid:GPU-a", "uuid:GPU-b"], "n/q/c": ["minor:1"]},
    ),
    "no devices": (listed(pod("[]"), pod("[1]", "q")), {"n/q/c": ["minor:1"]}),
    "null for no devices": (listed(pod("null")), {}),
    "null for no list": (" null\n", {}),
    "unknown keys": (listed(pod("[1]", more=',"zone":{"a":[1]}')), {"n/p/c": ["minor:1"]}),
    "key twice": (listed(pod("[1]", more=',"gpu_list":[2]')), {"n/p/c": ["minor:2"]}),
    "byte order mark": (b"\xef\xbb\xbf[" + pod("[1]").encode() + b"]", {"n/p/c": ["minor:1"]}),
    "carriage returns": (f"[\r\n{pod('[1]')}\r\n]\r\n", {"n/p/c": ["minor:1"]}),
    "escapes": (listed(pod('["\\u0047PU-a"]')), {"n/p/c": ["uuid:GPU-a"]}),
}


@pytest.mark.parametrize(("text", "expected"), GOOD.values(), ids=GOOD)
def test_reads(text: str | bytes, expected: dict[str, list[str]]) -> None:
    assert read(text) == expected
    listed = read_pod_list(text.encode() if isinstance(text, str) else text, PATH, "minor")
    assert listed.complaints == ()


def test_numbers_are_what_the_option_says() -> None:
    assert read(listed(pod("[2]")), "index") == {"n/p/c": ["index:2"]}


def test_a_claim_says_where_it_was_read_and_no_more_than_the_file() -> None:
    [claim] = read_pod_list(listed(pod("[]", "q"), pod("[1]")).encode(), PATH, "minor").claims
    assert claim.subject == PartialRef(namespace="n", pod="p", container="c")
    assert claim.origin == Origin(Evidence.POD_LIST_FILE, "podlist.json [1]")
    assert claim.share is None
    assert claim.since is None


REJECTED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "podlist.json: is empty; an empty list is written []"),
    "blank": (b" \n", "podlist.json: is empty; an empty list is written []"),
    "byte order mark alone": (
        b"\xef\xbb\xbf",
        "podlist.json: is empty; an empty list is written []",
    ),
    "object": (b"\n {}", "podlist.json:2:2: expected a list, found an object"),
    "text": (b'"GPU-a"', "podlist.json:1:1: expected a list, found a text"),
    "number": (b"1", "podlist.json:1:1: expected a list, found a number"),
    "true": (b"true", "podlist.json:1:1: expected a list, found true or false"),
    "cut off": (b'[{"name":"p"', "podlist.json:1:13: ends too early"),
    "cut off after a line": (b'[{"name":"p",\n', "podlist.json:2:1: ends too early"),
    "two lists": (b"[]\n[]", "podlist.json:2:1: JSON is malformed: trailing characters"),
    "trailing comma": (b"[1,]", "podlist.json:1:4: JSON is malformed: trailing comma in array"),
    "no JSON": (b"pods:\n- p", "podlist.json:1:1: JSON is malformed: invalid character"),
    "NaN": (b"[NaN]", "podlist.json:1:2: JSON is malformed: invalid character"),
    "NUL": (b"[]\x00", "podlist.json:1:3: JSON is malformed: trailing characters"),
    "NUL alone": (b"\x00" * 9, "podlist.json:1:1: JSON is malformed: invalid character"),
    "UTF-16": ("[]".encode("utf-16"), "podlist.json:1:1: JSON is malformed: invalid character"),
    "bad UTF-8": (
        '[1,\n{"name":"pät\n'.replace("\n", " ", 1).encode()[:-1] + b'\xff"}]',
        "podlist.json:1:17: [1]: is not valid UTF-8",
    ),
    "infinite number": (
        b"[1,1e999]",
        "podlist.json:1:4: [1]: number is infinity when parsed as double",
    ),
    "deep": (b"[" * 100_000, "podlist.json: is nested too deeply"),
    "too many values": (
        b"[" + b"1," * 1_000_000 + b"1]",
        "podlist.json: has more than 1000000 values",
    ),
}


@pytest.mark.parametrize(("data", "text"), REJECTED.values(), ids=REJECTED)
def test_rejects_as_a_whole(data: bytes, text: str) -> None:
    with pytest.raises(BadDocumentError) as caught:
        read_pod_list(data, PATH, "minor")
    assert str(caught.value) == text


LEFT_OUT: dict[str, tuple[str, str]] = {
    "true": ("[true]", f".gpu_list[0]: {DEVICE}, found true"),
    "null": ("[null]", f".gpu_list[0]: {DEVICE}, found null"),
    "negative": ("[-1]", f".gpu_list[0]: {DEVICE}, found -1"),
    "absurd": ("[1048576]", f".gpu_list[0]: {DEVICE}, found 1048576"),
    "huge": ("[1000000000000000000000]", f".gpu_list[0]: {DEVICE}, found 1e+21"),
    "fraction": ("[1.5]", f".gpu_list[0]: {DEVICE}, found 1.5"),
    "whole float": ("[1.0]", f".gpu_list[0]: {DEVICE}, found 1.0"),
    "empty text": ('[""]', f'.gpu_list[0]: {DEVICE}, found ""'),
    "prefix alone": ('["GPU-"]', f'.gpu_list[0]: {DEVICE}, found "GPU-"'),
    "device file": ('["/dev/nvidia0"]', f'.gpu_list[0]: {DEVICE}, found "/dev/nvidia0"'),
    "space": ('["GPU-a "]', f'.gpu_list[0]: {DEVICE}, found "GPU-a "'),
    "other digits": ('["\u0663"]', f'.gpu_list[0]: {DEVICE}, found "\u0663"'),
    "long": (f'["{"x" * 50}"]', f'.gpu_list[0]: {DEVICE}, found "{"x" * 40}..."'),
    "unprintable": ('["a\\nb\\u0000"]', f'.gpu_list[0]: {DEVICE}, found "a\\nb\\x00"'),
    "list": ("[[1]]", f".gpu_list[0]: {DEVICE}, found a list"),
    "object": ("[{}]", f".gpu_list[0]: {DEVICE}, found an object"),
    "no list": ('"GPU-a"', '.gpu_list: expected a list, found "GPU-a"'),
    "number": ("3", ".gpu_list: expected a list, found 3"),
    "too many": (
        "[" + "1," * 1024 + "1]",
        ".gpu_list: expected 1024 devices at most, found a list",
    ),
}


@pytest.mark.parametrize(("gpu_list", "text"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_leaves_out_what_is_no_device(gpu_list: str, text: str) -> None:
    data = f"[{pod('[1]', 'q')},\n  {pod(gpu_list)}]"
    column = len('  {"name":"p","namespace":"n","container":"c","gpu_list":') + 1
    column += "[" in text.partition(":")[0]
    assert read(data) == {"n/q/c": ["minor:1"]}
    [complaint] = read_pod_list(data.encode(), PATH, "minor").complaints
    assert complaint == f"podlist.json:2:{column}: [1]{text}"


def test_a_bad_device_costs_no_other() -> None:
    assert read(listed(pod('["GPU-a", true, "GPU-b"]'))) == {"n/p/c": ["uuid:GPU-a", "uuid:GPU-b"]}


BAD_ENTRIES: dict[str, tuple[str, str]] = {
    "text": ('"p"', '2:1: [1]: expected an object, found "p"'),
    "list": ("[]", "2:1: [1]: expected an object, found a list"),
    "null": ("null", "2:1: [1]: expected an object, found null"),
    "no name": (
        '{"namespace":"n","container":"c","gpu_list":[2]}',
        "2:1: [1].name: expected a name, found nothing",
    ),
    "no gpu_list": (
        '{"name":"p","namespace":"n","container":"c"}',
        "2:1: [1].gpu_list: expected a list, found nothing",
    ),
    "empty namespace": (
        '{"name":"p","namespace": "","container":"c","gpu_list":[2]}',
        '2:26: [1].namespace: expected a name, found ""',
    ),
    "number for a container": (
        '{"name":"p","namespace":"n","container":\n 7,"gpu_list":[2]}',
        "3:2: [1].container: expected a name, found 7",
    ),
    "space in a name": (
        '{"name":"p q","namespace":"n","container":"c","gpu_list":[2]}',
        '2:9: [1].name: expected a name, found "p q"',
    ),
    "NUL in a name": (
        '{"name":"p\\u0000","namespace":"n","container":"c","gpu_list":[2]}',
        '2:9: [1].name: expected a name, found "p\\x00"',
    ),
    "nested name": (
        '{"x":{"name":"p"},"namespace":"n","container":"c","gpu_list":[2],"name":[]}',
        "2:73: [1].name: expected a name, found a list",
    ),
}


@pytest.mark.parametrize(("bad", "text"), BAD_ENTRIES.values(), ids=BAD_ENTRIES)
def test_a_bad_entry_costs_no_other(bad: str, text: str) -> None:
    data = f"[{pod('[1]', 'q')},\n{bad},{pod('[3]', 'r')}]"
    assert read(data) == {"n/q/c": ["minor:1"], "n/r/c": ["minor:3"]}
    assert read_pod_list(data.encode(), PATH, "minor").complaints == (f"podlist.json:{text}",)


def test_tells_of_the_first_few_faults() -> None:
    data = f"[{pod('[true, true]')}, 1, {pod('[2, -2]', 'q')}, 3]"
    listed = read_pod_list(data.encode(), PATH, "minor")
    assert [text.split(": ")[1] for text in listed.complaints] == [
        "[0].gpu_list[0]",
        "[0].gpu_list[1]",
        "[1]",
        "2 more of this sort",
    ]


def test_reads_ten_megabytes() -> None:
    text = "[" + ",".join(pod(f'["GPU-{n:032x}"]', f"p-{n:032}") for n in range(78_000)) + "]"
    assert len(text) > 10_000_000
    listed = read_pod_list(text.encode(), PATH, "minor")
    assert len(listed.claims) == 78_000
    assert listed.complaints == ()
