"""Durations, sizes and listen addresses: parsing, refusing and printing."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.value_types import ByteSize, Duration, FormatError, ListenAddress


@pytest.mark.parametrize(
    ("text", "seconds", "canonical"),
    [
        ("5s", 5.0, "5s"),
        ("500ms", 0.5, "500ms"),
        ("1500ms", 1.5, "1.5s"),
        ("1m30s", 90.0, "1m30s"),
        ("90s", 90.0, "1m30s"),
        ("1.5h", 5400.0, "1h30m"),
        ("2d", 172800.0, "2d"),
        ("1d2h3m4s5ms", 93784.005, "1d2h3m4.005s"),
        ("0s", 0.0, "0s"),
        ("0.25ms", 0.00025, "0.25ms"),
        ("36500d", 3153600000.0, "36500d"),
    ],
)
def test_durations_are_seconds_with_a_canonical_spelling(
    text: str, seconds: float, canonical: str
) -> None:
    duration = Duration.parse(text)
    assert duration == seconds
    assert str(duration) == f"{duration}" == canonical
    assert repr(duration) == f"Duration('{canonical}')"
    assert duration.ns == round(seconds * 1_000_000_000)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", '"5" has no unit; write 5s or 5ms'),
        ("0", '"0" has no unit; write 0s or 0ms'),
        ("1.5", '"1.5" has no unit; write 1.5s or 1.5ms'),
        ("-5s", '"-5s" is negative; a duration is zero or more'),
        ("36501d", '"36501d" is too long; the maximum is 36500d'),
    ],
)
def test_a_refused_duration_has_a_hint_how_to_fix_it(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        Duration.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 5s",
        "5 s",
        "5s\n",
        "5S",
        "ms",
        "1s1m",
        "1s1s",
        "1.s",
        "1e3s",
        "5\N{MICRO SIGN}s",
        "\N{ARABIC-INDIC DIGIT FIVE}s",
        "9" * 70 + "s",
    ],
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="is not a duration"):
        Duration.parse(text)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), 1e12])
def test_a_duration_is_finite_and_not_negative(seconds: float) -> None:
    with pytest.raises(ValueError, match="a duration is between"):
        Duration(seconds)


@given(st.floats(min_value=0, max_value=Duration.longest))
def test_every_duration_can_be_parsed_from_its_printed_form(seconds: float) -> None:
    duration = Duration(seconds)
    again = Duration.parse(str(duration))
    assert again == duration
    assert again.ns == duration.ns
    assert abs(duration - seconds) <= 1e-6


def test_durations_copy_and_pickle() -> None:
    duration = Duration.parse("1m30s")
    for copied in (copy.deepcopy(duration), pickle.loads(pickle.dumps(duration))):  # noqa: S301 - its own
        assert (copied, type(copied)) == (duration, Duration)


@pytest.mark.parametrize(
    ("text", "count", "canonical"),
    [
        ("10MiB", 10 * 1024**2, "10MiB"),
        ("16KiB", 16384, "16KiB"),
        ("1GB", 10**9, "1GB"),
        ("512B", 512, "512B"),
        ("0B", 0, "0B"),
        ("1.5KiB", 1536, "1536B"),
        ("1024KiB", 1024**2, "1MiB"),
        ("1000KB", 10**6, "1MB"),
    ],
)
def test_sizes_are_bytes_with_a_canonical_spelling(text: str, count: int, canonical: str) -> None:
    size = ByteSize.parse(text)
    assert size == count
    assert str(size) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("10", '"10" has no unit; write 10KiB or 10B'),
        ("-1KB", '"-1KB" is negative; a size is zero or more'),
        ("1.5B", '"1.5B" is not a whole number of bytes; use a smaller unit'),
        ("9999999TiB", '"9999999TiB" is too large; the maximum is 9223372036854775807B'),
        (
            "10Mi",
            (
                '"10Mi" is not a size; write for example 10MiB; '
                "the units are B, KB, KiB, MB, MiB, GB, GiB, TB, TiB"
            ),
        ),
    ],
)
def test_a_refused_size_has_a_hint_how_to_fix_it(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        ByteSize.parse(text)
    assert str(caught.value) == message


@given(st.integers(min_value=0, max_value=ByteSize.largest))
def test_every_size_can_be_parsed_from_its_printed_form(count: int) -> None:
    assert ByteSize.parse(str(ByteSize(count))) == count


@pytest.mark.parametrize("count", [-1, 2**63])
def test_a_size_fits_63_bits(count: int) -> None:
    with pytest.raises(ValueError, match="a size is between"):
        ByteSize(count)


@pytest.mark.parametrize(
    ("text", "host", "port", "canonical"),
    [
        (":9400", "", 9400, ":9400"),
        (":0", "", 0, ":0"),
        ("127.0.0.1:9400", "127.0.0.1", 9400, "127.0.0.1:9400"),
        ("[::1]:9400", "::1", 9400, "[::1]:9400"),
        ("[0:0::1]:9400", "::1", 9400, "[::1]:9400"),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80, "[fe80::1%eth0]:80"),
        ("localhost:80", "localhost", 80, "localhost:80"),
        ("a-b.example:80", "a-b.example", 80, "a-b.example:80"),
    ],
)
def test_listen_addresses_are_parsed_and_printed(
    text: str, host: str, port: int, canonical: str
) -> None:
    address = ListenAddress.parse(text)
    assert address == ListenAddress(host, port)
    assert str(address) == canonical
    assert ListenAddress.parse(canonical) == address


def test_the_socket_of_systemd_is_a_listen_address() -> None:
    address = ListenAddress.parse("systemd")
    assert address == ListenAddress("", 0, systemd=True)
    assert address != ListenAddress.parse(":0")
    assert str(address) == "systemd"


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("9400", "is only a port", 'write ":9400"'),
        ("", "has no port", 'write for example ":9400"'),
        ("localhost", "has no port", 'write for example ":9400"'),
        ("localhost:", "has no port", 'write for example ":9400"'),
        ("localhost:http", "has a bad port", "a port is a number from 0 to 65535"),
        (":65536", "has a bad port", "a port is a number from 0 to 65535"),
        ("::1:9400", "is ambiguous", 'put IPv6 addresses in brackets: "[::1]:9400"'),
        ("[::g]:80", "has a bad IPv6 address", 'write for example "[::1]:9400"'),
        ("[::1%/]:80", "has a bad IPv6 address", 'write for example "[::1]:9400"'),
        ("1.2.3.999:80", "has a bad IPv4 address", 'write for example "127.0.0.1:9400"'),
        ("*:80", "has a wildcard host", "omit the host to listen everywhere"),
        ("http://x:80", "has a bad host", "write host:port, without a scheme or a path"),
        ("-a:80", "has a bad host", "write host:port, without a scheme or a path"),
    ],
)
def test_a_refused_address_has_a_hint_how_to_fix_it(text: str, reason: str, hint: str) -> None:
    with pytest.raises(FormatError) as caught:
        ListenAddress.parse(text)
    assert (caught.value.reason, caught.value.hint) == (reason, hint)


@given(st.text(max_size=80), st.sampled_from([Duration, ByteSize, ListenAddress]))
def test_any_text_is_read_or_refused(
    text: str, kind: type[Duration] | type[ByteSize] | type[ListenAddress]
) -> None:
    try:
        canonical = str(kind.parse(text))
    except FormatError as error:
        canonical = str(error)
    assert canonical.isprintable()
