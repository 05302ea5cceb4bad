"""Error texts for refusals of an API server, and how streams are split into lines."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.base.errors import ApiError
from pipeline.kube.api_errors import is_admission_denial, response_error, status_error
from pipeline.kube.api_request import ApiRequest, RequestedResource
from tests.support.examples import examples
from tests.support.kube import status

PODS = "/api/v1/pods"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
WATCH = {"watch": "true"}
NODE = "/api/v1/nodes/node-1"
POD = "/api/v1/namespaces/ml/pods/train-0"


@pytest.mark.parametrize(
    ("path", "query", "code", "body", "text"),
    [
        (
            PODS,
            WATCH,
            403,
            status(403, "Forbidden", 'pods is forbidden: User "x" cannot watch'),
            (
                'https://api: podgpu may not watch pods (403 Forbidden: pods is forbidden: User "x"'
                " cannot watch); give its service account a ClusterRole with "
                'apiGroups [""], resources ["pods"], verbs [list, watch]'
            ),
        ),
        (
            NODE,
            {},
            403,
            {},
            (
                "https://api: podgpu may not get nodes (403 Forbidden); give its service account a "
                'ClusterRole with apiGroups [""], resources ["nodes"], verbs [get, patch]'
            ),
        ),
        (
            POD,
            {"PATCH": ""},
            403,
            {},
            (
                "https://api: podgpu may not patch pods (403 Forbidden); give its service account "
                'a ClusterRole with apiGroups [""], resources ["pods"], verbs [get, patch]'
            ),
        ),
        (
            NODE,
            {"PATCH": ""},
            404,
            status(404, "NotFound", 'nodes "node-1" not found'),
            f'https://api: PATCH {NODE} failed: 404 NotFound: nodes "node-1" not found',
        ),
        (
            SLICES,
            {},
            403,
            {},
            (
                "https://api: podgpu may not list resourceslices of resource.k8s.io "
                "(403 Forbidden); give its service account a ClusterRole with apiGroups "
                '["resource.k8s.io"], resources ["resourceslices"], verbs [list, watch]'
            ),
        ),
        (
            PODS,
            WATCH,
            401,
            status(401, "Unauthorized", "Unauthorized"),
            (
                "https://api: credentials rejected (401 Unauthorized: Unauthorized); "
                "they come from /token: check that they belong to this cluster and have not expired"
            ),
        ),
        (
            SLICES,
            {},
            404,
            status(404, "NotFound", "the server could not find it"),
            f"https://api: GET {SLICES} failed: 404 NotFound: the server could not find it",
        ),
        (PODS, {}, 503, "<html>", f"https://api: GET {PODS} failed: 503 Service Unavailable"),
        (PODS, {}, 599, [1], f"https://api: GET {PODS} failed: 599"),
        (
            PODS,
            {},
            500,
            status(500, "InternalError", "two\nlines\x1b[31m" + "x" * 999),
            f"https://api: GET {PODS} failed: 500 InternalError: two lines [31m"
            + "x" * 286
            + "...",
        ),
    ],
)
def test_a_refusal_names_the_server_the_request_and_the_fix(
    path: str, query: dict[str, str], code: int, body: object, text: str
) -> None:
    error = response_error(
        "https://api",
        ApiRequest("PATCH" if "PATCH" in query else "GET", path, query),
        status=code,
        headers={},
        body=body.encode() if isinstance(body, str) else json.dumps(body).encode(),
        credentials="/token",
    )
    assert str(error) == text
    assert error.status == code


WEBHOOK = 'admission webhook "validation.example.com" denied the request: no GPUs on Fridays'
UNEXPLAINED = 'admission webhook "validation.example.com" denied the request without explanation'
POLICY = (
    "pods \"train-0\" is forbidden: ValidatingAdmissionPolicy 'guard' with binding 'guard' denied "
    "request: only annotations"
)
NO_PERMISSION = (
    'pods "train-0" is forbidden: User "system:serviceaccount:podgpu:podgpu" cannot patch resource '
    '"pods" in API group "" in the namespace "ml"'
)


def refusal(code: int, message: str) -> ApiError:
    return response_error(
        "https://api",
        ApiRequest("PATCH", POD, changes={}),
        status=code,
        headers={},
        body=json.dumps(status(code, "Forbidden", message)).encode(),
        credentials="/token",
    )


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 413, 422, 429, 500])
@pytest.mark.parametrize("message", [WEBHOOK, UNEXPLAINED, POLICY])
def test_a_denial_at_admission_does_not_suggest_a_permission(code: int, message: str) -> None:
    error = refusal(code, message)
    assert is_admission_denial(error)
    assert error.status == code
    assert str(error) == (
        f"https://api: PATCH {POD} is denied at admission ({code} Forbidden: {message}): podgpu "
        "has the permission, but a webhook or policy refuses this change"
    )


def test_a_denial_with_very_long_names_is_recognised() -> None:
    message = f"pods \"{'p' * 253}\" is forbidden: ValidatingAdmissionPolicy '{'n' * 253}' with "
    assert is_admission_denial(refusal(403, f"{message}binding 'b' denied request: no"))


@pytest.mark.parametrize("message", [NO_PERMISSION, "", "Forbidden", "<html>"])
def test_a_missing_permission_is_not_a_denial_at_admission(message: str) -> None:
    error = refusal(403, message)
    assert not is_admission_denial(error)
    assert 'resources ["pods"], verbs [get, patch]' in str(error)


@pytest.mark.parametrize(
    ("request_", "target", "verb"),
    [
        (ApiRequest("GET", PODS), RequestedResource("", "pods"), "list"),
        (ApiRequest("GET", PODS, WATCH), RequestedResource("", "pods"), "watch"),
        (ApiRequest("GET", SLICES), RequestedResource("resource.k8s.io", "resourceslices"), "list"),
        (ApiRequest("GET", POD), RequestedResource("", "pods", "ml", "train-0"), "get"),
        (
            ApiRequest("PATCH", NODE, changes={}),
            RequestedResource("", "nodes", "", "node-1"),
            "patch",
        ),
        (
            ApiRequest("GET", "/api/v1/namespaces/ml"),
            RequestedResource("", "namespaces", "", "ml"),
            "get",
        ),
        (ApiRequest("GET", "/api/v1/namespaces"), RequestedResource("", "namespaces"), "list"),
        (
            ApiRequest("GET", "/apis/apps/v1/namespaces/ml/daemonsets"),
            RequestedResource("apps", "daemonsets", "ml"),
            "list",
        ),
        (ApiRequest("GET", "/"), RequestedResource("", ""), "list"),
    ],
)
def test_a_request_has_an_rbac_resource_and_verb(
    request_: ApiRequest, target: RequestedResource, verb: str
) -> None:
    assert request_.target == target
    assert request_.verb == verb


@pytest.mark.parametrize(
    ("headers", "details", "seconds"),
    [
        ({}, {}, None),
        ({"Retry-After": "7"}, {}, 7),
        ({"Retry-After": "7"}, {"retryAfterSeconds": 3}, 7),
        ({}, {"retryAfterSeconds": 3}, 3),
        ({"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, {"retryAfterSeconds": 3}, 3),
        ({"Retry-After": "-1"}, {"retryAfterSeconds": -3}, None),
        ({"Retry-After": "999999999"}, {}, 300),
        ({}, {"retryAfterSeconds": 10**9}, 300),
        ({"Retry-After": "9" * 40}, {"retryAfterSeconds": "3"}, None),
    ],
)
def test_the_retry_delay_is_read_from_the_header_or_the_status(
    headers: dict[str, str], details: dict[str, object], seconds: float | None
) -> None:
    body = json.dumps(status(429, "TooManyRequests") | {"details": details}).encode()
    error = response_error(
        "x", ApiRequest("GET", PODS), status=429, headers=headers, body=body, credentials=""
    )
    assert error.retry_after == seconds


@settings(max_examples=examples(50))
@given(
    st.dictionaries(
        st.sampled_from(["code", "reason", "message", "details"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    )
)
def test_any_status_object_gives_a_printable_error(status_object: dict[str, object]) -> None:
    assert str(status_error(status_object)).isprintable()
