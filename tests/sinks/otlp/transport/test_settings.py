"""Settings from options and environment variables: precedence, endpoints, invalid values."""

import re
from pathlib import Path
from typing import Any

import pytest

from config.value_types import Duration
from pipeline.base.errors import PermanentError
from sinks.otlp.options import Options, TlsOptions
from sinks.otlp.transport.settings import Settings, resolve_settings

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
EXACT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
HTTP = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


def resolve(options: Options | None = None, /, **env: str) -> Settings:
    return resolve_settings(
        options or Options(), {f"OTEL_EXPORTER_OTLP_{k}": v for k, v in env.items()}
    )


def test_default_settings() -> None:
    found = resolve()
    assert found.protocol == "grpc"
    assert found.endpoint.address == "dns:///localhost:4317"
    assert not found.endpoint.secure
    assert found.compression == "gzip"
    assert found.timeout == 10
    assert found.temporality == "cumulative"
    assert (found.headers, found.resource, found.token_file) == ({}, {}, None)
    assert found.tls == TlsOptions()
    assert found.hints == ()


def test_default_endpoint_over_http() -> None:
    assert resolve(PROTOCOL="http/protobuf").endpoint.address == "http://localhost:4318/v1/metrics"


@pytest.mark.parametrize(
    ("name", "option", "specific", "generic", "default"),
    [
        ("protocol", "grpc", "http/protobuf", "grpc", "grpc"),
        ("compression", "none", "gzip", "none", "gzip"),
        ("timeout", "3s", "4000", "5000", 10.0),
        ("headers", {"a": "1"}, "a=2", "a=3", {}),
    ],
)
def test_precedence_of_options_and_environment_variables(
    name: str, option: Any, specific: str, generic: str, default: object
) -> None:
    def read(text: str) -> object:
        if name == "timeout":
            return int(text) / 1000
        return {"a": text[-1]} if name == "headers" else text

    configured: Any = Duration.parse(option) if name == "timeout" else option
    env = {f"METRICS_{name.upper()}": specific, name.upper(): generic}
    assert getattr(resolve(Options(**{name: configured}), **env), name) == configured
    assert getattr(resolve(**env), name) == read(specific)
    assert getattr(resolve(**{name.upper(): generic}), name) == read(generic)
    assert getattr(resolve(**{f"METRICS_{name.upper()}": "", name.upper(): " "}), name) == default


def test_the_endpoint_option_overrides_the_variables() -> None:
    env = {BASE: "http://base:1", EXACT: "http://exact:2"}
    assert (
        resolve_settings(Options(endpoint="http://file:3"), env).endpoint.address == "dns:///file:3"
    )
    assert resolve_settings(Options(), env).endpoint.address == "dns:///exact:2"
    del env[EXACT]
    assert resolve_settings(Options(), env).endpoint.address == "dns:///base:1"


@pytest.mark.parametrize(
    ("where", "given", "url"),
    [
        ("option", "http://c:4318", "http://c:4318/v1/metrics"),
        ("option", "http://c:4318/", "http://c:4318/v1/metrics"),
        ("option", "https://c/api/v1/otlp/v1/metrics", "https://c/api/v1/otlp/v1/metrics"),
        ("option", "https://c/mine/", "https://c/mine/"),
        ("option", "HTTPS://C/v1/metrics?key=a", "https://C/v1/metrics?key=a"),
        ("option", "http://[::1]:4318", "http://[::1]:4318/v1/metrics"),
        (BASE, "http://c:4318", "http://c:4318/v1/metrics"),
        (BASE, "http://c:4318/mine", "http://c:4318/mine/v1/metrics"),
        (BASE, "http://c:4318/mine/", "http://c:4318/mine/v1/metrics"),
        (BASE, "http://c//", "http://c/v1/metrics"),
        # It looks like a mistake, but the specification requires it.
        (BASE, "http://c/v1/metrics", "http://c/v1/metrics/v1/metrics"),
        (EXACT, "http://c:4318", "http://c:4318/"),
        (EXACT, "http://c:4318/v1/metrics/", "http://c:4318/v1/metrics/"),
        (EXACT, "https://c/x?y=1", "https://c/x?y=1"),
    ],
)
def test_the_path_of_an_http_endpoint(where: str, given: str, url: str) -> None:
    if where == "option":
        found = resolve_settings(Options(endpoint=given, protocol="http/protobuf"), {})
    else:
        found = resolve_settings(Options(), {**HTTP, where: given})
    assert found.endpoint.address == url
    assert found.endpoint.secure == url.startswith("https")


@pytest.mark.parametrize(
    ("env", "given", "place"),
    [
        (HTTP, "https://c/v1/metrics?api-key=secret", "https://c/v1/metrics"),
        ({}, "https://c:4317?api-key=secret", "https://c:4317"),
        ({}, "http://c:4317/?api-key=secret", "http://c:4317/"),
        ({}, "dns:///c:4317?api-key=secret", "dns:///c:4317"),
    ],
)
def test_the_query_of_an_endpoint_is_not_shown(env: dict[str, str], given: str, place: str) -> None:
    found = resolve_settings(Options(), {**env, EXACT: given})
    assert found.endpoint.display_address == place
    assert "secret" not in "".join(found.hints)


@pytest.mark.parametrize(
    ("given", "target", "secure"),
    [
        ("http://c:4317", "dns:///c:4317", False),
        ("https://c:4317", "dns:///c:4317", True),
        ("http://c", "dns:///c:80", False),
        ("https://c/", "dns:///c:443", True),
        ("http://[::1]:4317", "dns:///[::1]:4317", False),
        ("c:4317", "dns:///c:4317", True),
        ("10.0.0.1:4317", "dns:///10.0.0.1:4317", True),
        ("[::1]:4317", "dns:///[::1]:4317", True),
        ("dns:///c:4317", "dns:///c:4317", True),
        ("dns://1.1.1.1/c:4317", "dns://1.1.1.1/c:4317", True),
        ("ipv4:10.0.0.1:4317,10.0.0.2:4317", "ipv4:10.0.0.1:4317,10.0.0.2:4317", True),
        ("unix:/run/otel.sock", "unix:/run/otel.sock", False),
        ("unix:///run/otel.sock", "unix:///run/otel.sock", False),
        # A host of this name.
        ("unix:4317", "dns:///unix:4317", True),
        # A scheme is the same in capitals (RFC 3986, 3.1).
        ("DNS:///C:4317", "dns:///C:4317", True),
        ("Unix:/run/Otel.sock", "unix:/run/Otel.sock", False),
        ("IPv4:10.0.0.1:4317", "ipv4:10.0.0.1:4317", True),
        ("HTTP://c:4317", "dns:///c:4317", False),
    ],
)
def test_the_target_of_a_grpc_endpoint(given: str, target: str, secure: bool) -> None:
    for options, env in ((Options(endpoint=given), {}), (Options(), {EXACT: given})):
        found = resolve_settings(options, env).endpoint
        assert (found.address, found.secure) == (target, secure)


@pytest.mark.parametrize("given", ["http://c:4317", "https://c:4317"])
@pytest.mark.parametrize("insecure", ["true", "false"])
def test_the_scheme_overrides_the_insecure_variable(given: str, insecure: str) -> None:
    found = resolve(METRICS_ENDPOINT=given, METRICS_INSECURE=insecure)
    assert found.endpoint.secure == given.startswith("https")


def test_insecure_applies_to_endpoints_without_a_scheme() -> None:
    assert not resolve(ENDPOINT="c:4317", INSECURE="True").endpoint.secure
    assert resolve(ENDPOINT="c:4317", INSECURE="true", METRICS_INSECURE="false").endpoint.secure
    assert not resolve(Options(endpoint="dns:///c:1"), METRICS_INSECURE="true").endpoint.secure


@pytest.mark.parametrize("value", ["1", "yes", "tru", "on"])
@pytest.mark.parametrize("name", ["INSECURE", "METRICS_INSECURE"])
def test_an_insecure_value_other_than_true_is_false_with_a_hint(name: str, value: str) -> None:
    found = resolve(ENDPOINT="c:4317", **{name: value})
    assert found.endpoint.secure
    [hint] = found.hints
    assert f"OTEL_EXPORTER_OTLP_{name} is '{value}', which counts as false: set true" in hint


@pytest.mark.parametrize("value", ["true", "True", "FALSE", ""])
def test_valid_insecure_values_have_no_hint(value: str) -> None:
    assert resolve(ENDPOINT="c:4317", INSECURE=value).hints == ()


@pytest.mark.parametrize(
    ("value", "protocol"),
    [("GRPC", "grpc"), ("Http/Protobuf", "http/protobuf"), ("HTTP/PROTOBUF", "http/protobuf")],
)
def test_the_protocol_is_case_insensitive(value: str, protocol: str) -> None:
    assert resolve(PROTOCOL=value).protocol == protocol


@pytest.mark.parametrize(
    ("options", "env", "hint"),
    [
        (
            Options(),
            {**HTTP, EXACT: "http://c:4318"},
            "the path /, but most .* podgpu adds nothing",
        ),
        (
            Options(endpoint="http://c:9090/api/v1/otlp", protocol="http/protobuf"),
            {},
            "the path /api/v1/otlp, but most receivers use /v1/metrics",
        ),
        (Options(endpoint="http://c:4318"), {}, "4318 is usually the port for HTTP"),
        (
            Options(endpoint="http://c:4317", protocol="http/protobuf"),
            {},
            "4317 is usually the port for",
        ),
        (Options(endpoint="https://c"), {}, "no port, so 443 is used"),
        (Options(endpoint="https://c:1?x=1"), {}, "after the \\? has no effect over gRPC"),
        (
            Options(tls=TlsOptions(ca_file=Path("/ca"))),
            {BASE: "http://c:4317"},
            "does not use TLS, so the tls options have no effect",
        ),
    ],
)
def test_probable_mistakes_have_a_hint(options: Options, env: dict[str, str], hint: str) -> None:
    [found] = resolve_settings(options, env).hints
    assert re.search(hint, found)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1,b=2", {"a": "1", "b": "2"}),
        (" a = 1 ,, B=2 ,", {"a": "1", "b": "2"}),
        ("authorization=Basic%20dTpw", {"authorization": "Basic dTpw"}),
        ("authorization=Basic dTpw==", {"authorization": "Basic dTpw=="}),
        ("a=x%2Cy%3D", {"a": "x,y="}),
    ],
)
def test_headers_of_a_variable_are_parsed(text: str, found: dict[str, str]) -> None:
    assert resolve(HEADERS=text).headers == found


def test_a_token_file_overrides_the_authorization_header_of_a_variable() -> None:
    options = Options(bearer_token_file=Path("/token"))
    found = resolve(options, HEADERS="Authorization=Basic%20x,tenant=a")
    assert found.headers == {"tenant": "a"}
    assert found.token_file == Path("/token")


def test_certificate_files_of_variables() -> None:
    env = {
        "CERTIFICATE": "/generic/ca",
        "METRICS_CERTIFICATE": "/ca",
        "CLIENT_CERTIFICATE": "/cert",
        "METRICS_CLIENT_KEY": "/key",
    }
    found = resolve(ENDPOINT="https://c:4317", **env)
    assert found.tls == TlsOptions(
        ca_file=Path("/ca"), cert_file=Path("/cert"), key_file=Path("/key")
    )
    assert found.tls_names == {
        "ca": "the file of OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE",
        "cert": "the file of OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        "key": "the file of OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY",
    }
    # Without TLS the variables have no effect: they may be meant for other programs.
    assert resolve(ENDPOINT="http://c:4317", **env).tls == TlsOptions()
    tls_options = TlsOptions(server_name="c")
    found = resolve(Options(endpoint="https://c:1", tls=tls_options), **env)
    assert (found.tls, found.tls_names) == (tls_options, {})


def test_resource_attributes_of_options_and_variables() -> None:
    env = {
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=a,team=x%20y,rack=1",
        "OTEL_SERVICE_NAME": "b",
    }
    found = resolve_settings(Options(resource={"rack": "2"}), env).resource
    assert found == {"service.name": "b", "team": "x y", "rack": "2"}
    assert (
        resolve_settings(Options(resource={"service.name": "c"}), env).resource["service.name"]
        == "c"
    )


@pytest.mark.parametrize("text", ["delta", "DELTA", "LowMemory", "cumulative"])
def test_the_temporality_option_overrides_the_variable(text: str) -> None:
    env = {"METRICS_TEMPORALITY_PREFERENCE": text}
    assert resolve(**env).temporality == text.lower()
    assert resolve(Options(temporality="delta"), **env).temporality == "delta"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PROTOCOL", "http/json", "http/json, which podgpu does not support: set http/protobuf"),
        ("PROTOCOL", "HTTP/JSON", "http/json, which podgpu does not support: set http/protobuf"),
        ("METRICS_PROTOCOL", "gRPCs", "'grpcs': it must be grpc or http/protobuf"),
        ("COMPRESSION", "zstd", "'zstd': it must be gzip or none"),
        ("METRICS_TEMPORALITY_PREFERENCE", "x", "cumulative or delta or lowmemory"),
        ("TIMEOUT", "10s", "whole milliseconds without a unit, such as 10000"),
        ("TIMEOUT", "1.5", "whole milliseconds"),
        ("TIMEOUT", "-1", "whole milliseconds"),
        # Some programs read this as ten seconds.
        ("METRICS_TIMEOUT", "10", "10 milliseconds: it must be from 100"),
        ("TIMEOUT", "0", "from 100 to 600000"),
        ("TIMEOUT", "600001", "from 100 to 600000"),
        ("HEADERS", "secret", "has entry 1, which is not of the form name=value"),
        ("HEADERS", "a=1,=secret", "has entry 2, which is not of the form name=value"),
        ("HEADERS", "a=%ff", "%-escapes that are not UTF-8"),
        ("HEADERS", "a=secret%0d%0ab: c", "'a' that has an invalid value"),
        ("HEADERS", "a b=secret", "'a b' that is not a valid header name"),
        ("HEADERS", "Content-Type=secret", "is set by podgpu itself: remove it"),
        ("HEADERS", "grpc-timeout=secret", "is set by podgpu itself"),
        ("HEADERS", "x-bin=secret", "has a binary value in gRPC"),
        ("ENDPOINT", "http://user:secret@c:1", "contains a user: use the header authorization"),
        ("ENDPOINT", "ftp://secret", "has the scheme ftp: over gRPC it must be http:// or"),
        ("ENDPOINT", "GRPC://secret:1", "has the scheme grpc: over gRPC it must be http://"),
        ("ENDPOINT", "http://c:4317#secret", "contains a #, which no endpoint"),
        ("ENDPOINT", "http://c:4317#", "contains a #, which no endpoint"),
        ("ENDPOINT", "http://c:", "has a colon without a port"),
        ("ENDPOINT", "https://[::1]:/", "has a colon without a port"),
        ("ENDPOINT", f"http://{64 * 'a'}.b:1", "a part of more than 63 characters"),
        ("ENDPOINT", f"{64 * 'a'}.b:1", "a part of more than 63 characters"),
        ("ENDPOINT", "http://a..b:1", "is not an address"),
        ("ENDPOINT", "a..b:1", "is not an address"),
        ("ENDPOINT", "http://", "is not an address: use for example http://collector:4317"),
        ("ENDPOINT", "http://c:99999", "is not an address"),
        ("ENDPOINT", "http://c:0", "is not an address"),
        ("ENDPOINT", "c:99999", "is not an address"),
        ("ENDPOINT", "a b", "is not an address"),
        ("ENDPOINT", "http://[::1", "is not an address"),
        ("METRICS_ENDPOINT", "http://c:4318/v1/metrics", "but gRPC has no paths: remove it"),
    ],
)
def test_an_invalid_variable_is_named_with_a_fix(name: str, value: str, expected: str) -> None:
    with pytest.raises(PermanentError) as caught:
        resolve(**{name: value})
    text = str(caught.value)
    assert text.startswith(f"the variable OTEL_EXPORTER_OTLP_{name} ")
    assert expected in text
    assert "secret" not in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("ftp://c:4318", "has the scheme ftp: over HTTP it must be http:// or https://"),
        ("grpc://c:4318", "has the scheme grpc: over HTTP it must be http:// or https://"),
        ("dns:///c:4318", "has the scheme dns: over HTTP it must be http:// or https://"),
        ("http://c:4318#a", "contains a #"),
        ("http://c:/v1/metrics", "has a colon without a port"),
        (f"http://{64 * 'a'}:4318", "has a host with a part of more than 63 characters"),
        (f"http://{63 * 'a'}..b:4318", "is not an address: use for example http://collector:4318"),
    ],
)
@pytest.mark.parametrize("name", ["ENDPOINT", "METRICS_ENDPOINT"])
def test_invalid_endpoints_over_http(name: str, value: str, expected: str) -> None:
    with pytest.raises(PermanentError, match=f"OTEL_EXPORTER_OTLP_{name} {expected}"):
        resolve(PROTOCOL="http/protobuf", **{name: value})


@pytest.mark.parametrize("value", [f"http://{63 * 'a'}.b:1", "http://a.b.:1", "http://[::1]:1"])
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_valid_host_names_are_accepted(value: str, protocol: str) -> None:
    assert resolve(PROTOCOL=protocol, ENDPOINT=value).endpoint.display_address.startswith(value)


@pytest.mark.parametrize("value", ["c:4318", "localhost"])
def test_an_http_endpoint_needs_a_scheme(value: str) -> None:
    with pytest.raises(
        PermanentError, match="has no scheme: over HTTP it must begin with http:// or https://"
    ):
        resolve(PROTOCOL="http/protobuf", ENDPOINT=value)


def test_invalid_resource_attributes_are_an_error() -> None:
    with pytest.raises(
        PermanentError, match="variable OTEL_RESOURCE_ATTRIBUTES has entry 1, which is not"
    ):
        resolve_settings(Options(), {"OTEL_RESOURCE_ATTRIBUTES": "abc"})


@pytest.mark.parametrize(
    ("given", "missing"),
    [("CLIENT_KEY", "CLIENT_CERTIFICATE"), ("METRICS_CLIENT_CERTIFICATE", "CLIENT_KEY")],
)
def test_a_certificate_without_its_key_is_an_error(given: str, missing: str) -> None:
    with pytest.raises(PermanentError, match=f"OTEL_EXPORTER_OTLP_{missing} is not set"):
        resolve(ENDPOINT="https://c:1", **{given: "/pem"})


def test_an_endpoint_option_must_fit_the_protocol_of_a_variable() -> None:
    options = Options(endpoint="http://c:4318/v1/metrics")
    assert resolve(options, PROTOCOL="http/protobuf").endpoint.address == options.endpoint
    with pytest.raises(PermanentError, match=r"endpoint has the path .* \(the protocol is grpc\)"):
        resolve(options)
