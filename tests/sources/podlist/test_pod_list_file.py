from pathlib import Path
from typing import Literal

import pytest

from pipeline.model import Evidence, Origin, PartialRef
from sources.podlist.pod_list_file import BadDocumentError, read_pod_list

PATH = Path("podlist.json")
DEVICE = "expected a GPU UUID, a MIG UUID or a number"


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
    "empty list": ("[]", {}),
    "empty list, with space around": (" \r\n[ ]\n", {}),
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
    "entry of podgpu": (
        listed(pod("[1]", more=',"writer":"podgpu"'), pod("[2]", "q", ',"writer":"other"')),
        {"n/q/c": ["minor:2"]},
    ),
    "entry of podgpu with invalid devices": (
        listed('{"writer":"podgpu","gpu_list":[true]}'),
        {},
    ),
    "key twice": (listed(pod("[1]", more=',"gpu_list":[2]')), {"n/p/c": ["minor:2"]}),
    "byte order mark": (b"\xef\xbb\xbf[" + pod("[1]").encode() + b"]", {"n/p/c": ["minor:1"]}),
    "carriage returns": (f"[\r\n{pod('[1]')}\r\n]\r\n", {"n/p/c": ["minor:1"]}),
    "escapes": (listed(pod('["\\u0047PU-a"]')), {"n/p/c": ["uuid:GPU-a"]}),
}


@pytest.mark.parametrize(("text", "expected"), GOOD.values(), ids=GOOD)
def test_a_valid_list_is_read(text: str | bytes, expected: dict[str, list[str]]) -> None:
    assert read(text) == expected
    listed = read_pod_list(text.encode() if isinstance(text, str) else text, PATH, "minor")
    assert listed.problems == ()


def test_numbers_are_interpreted_as_the_option_integers_sets() -> None:
    assert read(listed(pod("[2]")), "index") == {"n/p/c": ["index:2"]}


def test_a_claim_has_the_file_as_its_origin_and_no_share_or_start() -> None:
    [claim] = read_pod_list(listed(pod("[]", "q"), pod("[1]")).encode(), PATH, "minor").claims
    assert claim.subject == PartialRef(namespace="n", pod="p", container="c")
    assert claim.origin == Origin(Evidence.POD_LIST_FILE, "podlist.json [1]")
    assert claim.share is None
    assert claim.since is None


REJECTED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "podlist.json: is empty; an empty list is written []"),
    "blank": (b" \n", "podlist.json: is empty; an empty list is written []"),
    "only a byte order mark": (
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
    "trailing comma": (b"[1,]", "podlist.json:1:4: JSON is malformed: expecting value"),
    "no JSON": (b"pods:\n- p", "podlist.json:1:1: JSON is malformed: expecting value"),
    "NaN": (b"[NaN]", "podlist.json:1:2: JSON is malformed: NaN is not a number"),
    "NUL": (b"[]\x00", "podlist.json:1:3: JSON is malformed: trailing characters"),
    "only NUL": (b"\x00" * 9, "podlist.json:1:1: JSON is malformed: expecting value"),
    "UTF-16": ("[]".encode("utf-16"), "podlist.json:1:1: JSON is malformed: expecting value"),
    "bad UTF-8 outside of a text": (
        b"[1,\xff]",
        "podlist.json:1:4: JSON is malformed: expecting value",
    ),
    "line end in a text": (
        b'["a\nb"]',
        "podlist.json:1:4: JSON is malformed: invalid control character at",
    ),
    "malformed after half a surrogate pair": (
        b'["\\ud800","\\x"]',
        "podlist.json:1:12: JSON is malformed: invalid \\escape",
    ),
    "cut off after half a surrogate pair": (
        b'["\\ud800',
        "podlist.json:1:4: JSON is malformed: invalid \\uxxxx escape",
    ),
    "deep": (b"[" * 100_000, "podlist.json: is nested too deeply"),
    "too many values": (
        b"[" + b"1," * 1_000_000 + b"1]",
        "podlist.json: has more than 1000000 values",
    ),
}


@pytest.mark.parametrize(("data", "text"), REJECTED.values(), ids=REJECTED)
def test_an_invalid_list_is_rejected(data: bytes, text: str) -> None:
    with pytest.raises(BadDocumentError) as caught:
        read_pod_list(data, PATH, "minor")
    assert str(caught.value) == text


IGNORED: dict[str, tuple[str, str]] = {
    "true": ("[true]", f".gpu_list[0]: {DEVICE}, found true"),
    "null": ("[null]", f".gpu_list[0]: {DEVICE}, found null"),
    "negative": ("[-1]", f".gpu_list[0]: {DEVICE}, found -1"),
    "absurd": ("[1048576]", f".gpu_list[0]: {DEVICE}, found 1048576"),
    "huge": ("[1000000000000000000000]", f".gpu_list[0]: {DEVICE}, found 1e+21"),
    "fraction": ("[1.5]", f".gpu_list[0]: {DEVICE}, found 1.5"),
    "whole float": ("[1.0]", f".gpu_list[0]: {DEVICE}, found 1.0"),
    "empty text": ('[""]', f'.gpu_list[0]: {DEVICE}, found ""'),
    "only a prefix": ('["GPU-"]', f'.gpu_list[0]: {DEVICE}, found "GPU-"'),
    "device file": ('["/dev/nvidia0"]', f'.gpu_list[0]: {DEVICE}, found "/dev/nvidia0"'),
    "space": ('["GPU-a "]', f'.gpu_list[0]: {DEVICE}, found "GPU-a "'),
    "other digits": ('["\u0663"]', f'.gpu_list[0]: {DEVICE}, found "\u0663"'),
    "long": (f'["{"x" * 70}::y"]', f'.gpu_list[0]: {DEVICE}, found "{"x" * 32}...{"x" * 29}::y"'),
    # T24: the message shows the part that is wrong.
    "replica": (
        '["GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d::five"]',
        f'.gpu_list[0]: {DEVICE}, found "GPU-8c25ea37-2909-6e62-b7bf-e2fcadebea8d::five"',
    ),
    "unprintable": ('["a\\nb\\u0000"]', f'.gpu_list[0]: {DEVICE}, found "a\\nb\\x00"'),
    "list": ("[[1]]", f".gpu_list[0]: {DEVICE}, found a list"),
    "object": ("[{}]", f".gpu_list[0]: {DEVICE}, found an object"),
    "no list": ('"GPU-a"', '.gpu_list: expected a list, found "GPU-a"'),
    "number": ("3", ".gpu_list: expected a list, found 3"),
    "too many": (
        "[" + "1," * 1024 + "1]",
        ".gpu_list: expected at most 1024 devices, found a list",
    ),
}


@pytest.mark.parametrize(("gpu_list", "text"), IGNORED.values(), ids=IGNORED)
def test_an_invalid_device_is_ignored_and_reported(gpu_list: str, text: str) -> None:
    data = f"[{pod('[1]', 'q')},\n  {pod(gpu_list)}]"
    column = len('  {"name":"p","namespace":"n","container":"c","gpu_list":') + 1
    column += "[" in text.partition(":")[0]
    assert read(data) == {"n/q/c": ["minor:1"]}
    [problem] = read_pod_list(data.encode(), PATH, "minor").problems
    assert problem == f"podlist.json:2:{column}: [1]{text}"


def test_an_invalid_device_does_not_affect_other_devices() -> None:
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
def test_an_invalid_entry_does_not_affect_other_entries(bad: str, text: str) -> None:
    data = f"[{pod('[1]', 'q')},\n{bad},{pod('[3]', 'r')}]"
    assert read(data) == {"n/q/c": ["minor:1"], "n/r/c": ["minor:3"]}
    assert read_pod_list(data.encode(), PATH, "minor").problems == (f"podlist.json:{text}",)


# Strings and numbers that strict JSON in UTF-8 does not allow.
INVALID: dict[str, tuple[bytes, str]] = {
    "first half of a pair": (b'"p\\ud800"', '"p\\ud800"'),
    "second half of a pair": (b'"\\uDC00p"', '"\\udc00p"'),
    "halves the wrong way round": (b'"\\udc00\\ud800"', '"\\udc00\\ud800"'),
    "half and another escape": (b'"\\uD800\\n"', '"\\ud800\\n"'),
    "half between pairs": (
        b'"\\ud83d\\ude00\\ud83d\\ud83d\\ude00"',
        '"\U0001f600\\ud83d\U0001f600"',
    ),
    "half in bytes": (b'"p\xed\xa0\x80"', '"p\\udced\\udca0\\udc80"'),
    "Latin-1": (b'"p\xe4t"', '"p\\udce4t"'),
    "cut off character": (b'"p\xc3"', '"p\\udcc3"'),
    "number beyond floats": (b"1e999", "inf"),
}


@pytest.mark.parametrize(("invalid", "shown"), INVALID.values(), ids=INVALID)
@pytest.mark.parametrize("key", ["name", "namespace", "container"])
def test_an_entry_with_invalid_text_in_a_name_is_skipped(
    invalid: bytes, shown: str, key: str
) -> None:
    entry = pod("[2]").encode()
    value = {"name": b'"p"', "namespace": b'"n"', "container": b'"c"'}[key]
    bad = entry.replace(b'"%b":%b' % (key.encode(), value), b'"%b":%b' % (key.encode(), invalid))
    column = bad.index(invalid) + 1
    data = b"[%b,\n%b,%b]" % (pod("[1]", "q").encode(), bad, pod("[3]", "r").encode())
    assert read(data) == {"n/q/c": ["minor:1"], "n/r/c": ["minor:3"]}
    [problem] = read_pod_list(data, PATH, "minor").problems
    assert problem == f"podlist.json:2:{column}: [1].{key}: expected a name, found {shown}"


@pytest.mark.parametrize(("invalid", "shown"), INVALID.values(), ids=INVALID)
def test_a_device_with_invalid_text_is_skipped(invalid: bytes, shown: str) -> None:
    data = b'[{"name":"p","namespace":"n","container":"c","gpu_list":[1,%b,2]}]' % invalid
    assert read(data) == {"n/p/c": ["minor:1", "minor:2"]}
    [problem] = read_pod_list(data, PATH, "minor").problems
    assert problem.endswith(f"[0].gpu_list[1]: {DEVICE}, found {shown}")


@pytest.mark.parametrize("invalid", [invalid for invalid, _ in INVALID.values()], ids=INVALID)
def test_invalid_text_in_unknown_keys_is_ignored(invalid: bytes) -> None:
    more = b'"note":{"x":[%b]}' % invalid
    if invalid.startswith(b'"'):
        more += b",%b:1" % invalid
    data = b'[{%b,"name":"p","namespace":"n","container":"c","gpu_list":[1, true]}]' % more
    assert read(data) == {"n/p/c": ["minor:1"]}
    [problem] = read_pod_list(data, PATH, "minor").problems
    assert problem.startswith(f"podlist.json:1:{len(data[:-7].decode('utf-8', 'replace')) + 1}: ")


def test_a_number_with_thousands_of_digits_in_an_unknown_key_is_ignored() -> None:
    unknown = b'"note":"\xff","big":%b' % (b"9" * 5000)
    data = b"[%b]" % pod("[1]").encode().replace(b"{", b"{" + unknown + b",", 1)
    assert read(data) == {"n/p/c": ["minor:1"]}
    assert read_pod_list(data, PATH, "minor").problems == ()


def test_an_escaped_backslash_is_not_read_as_half_a_surrogate_pair() -> None:
    data = rb'[{"name":"p\\ud800","namespace":"n","container":"c","gpu_list":[1]},"\ud800"]'
    assert read(data) == {"n/p\\ud800/c": ["minor:1"]}


def test_only_the_first_problems_are_reported_in_full() -> None:
    data = f"[{pod('[true, true]')}, 1, {pod('[2, -2]', 'q')}, 3]"
    listed = read_pod_list(data.encode(), PATH, "minor")
    assert [text.split(": ")[1] for text in listed.problems] == [
        "[0].gpu_list[0]",
        "[0].gpu_list[1]",
        "[1]",
        "2 more problems of this kind",
    ]


def many(count: int, gpu_list: str = '["GPU-{n:032x}"]') -> bytes:
    pods = (pod(gpu_list.format(n=n), f"p-{n:032}") for n in range(count))
    return ("[" + ",".join(pods) + "]").encode()


@pytest.mark.slow
def test_a_list_of_ten_megabytes_is_read() -> None:
    data = many(95_000, "[]")[:-1] + b"," + many(10_000)[1:]
    assert len(data) > 10_000_000
    listed = read_pod_list(data, PATH, "minor")
    assert len(listed.claims) == 10_000
    assert listed.problems == ()


TOO_MANY: dict[str, bytes] = {
    "unknown ids": many(10_001),
    "one device": many(10_001, "[0]"),
    "few entries of many devices": many(10, str(list(range(1001)))),
    "one container": b"["
    + b",".join(pod(str(list(range(n * 1000, n * 1000 + 1000)))).encode() for n in range(11))
    + b"]",
}


@pytest.mark.slow
@pytest.mark.parametrize("data", TOO_MANY.values(), ids=TOO_MANY)
def test_a_list_with_more_devices_than_a_node_can_have_is_rejected(data: bytes) -> None:
    with pytest.raises(BadDocumentError) as caught:
        read_pod_list(data, PATH, "minor")
    assert str(caught.value) == (
        "podlist.json: lists more than 10000 devices, with a shared one counted for each of its "
        "containers; one node cannot have so many"
    )


def test_a_device_that_is_listed_twice_is_claimed_once() -> None:
    same = ",".join([pod(str(list(range(1000))))] * 20)
    assert len(read(f"[{same}]")["n/p/c"]) == 1000
