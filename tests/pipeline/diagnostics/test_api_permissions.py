"""Which requests an API server allows podgpu to make, and fixes for refusals."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pipeline.base.errors import ApiError, TransientError
from pipeline.component.contracts import KubeApi
from pipeline.component.findings import BOTH, Check, Verdict
from pipeline.diagnostics.api_permissions import (
    REVIEWS,
    Right,
    fix_for,
    is_allowed,
    review_rights,
    try_list,
    try_watch,
)
from pipeline.kube.sessions import Sessions
from tests.pipeline.kube.conftest import Server, kubeconfig, says
from tests.podgpu.doctor.support import is_bad, page, serving
from tests.support.kube import ApiServer, Collection, named

NODES = "/api/v1/nodes"
PATCH = Right("patch", "nodes", name="node-1")
GET = Right("get", "nodes", name="node-1")


@asynccontextmanager
async def session(folder: Path, server: ApiServer) -> AsyncIterator[KubeApi]:
    async with (
        server.serving(),
        Sessions().session(server.kubeconfig(folder / "kubeconfig")) as api,
    ):
        yield api


async def test_an_access_review_is_about_one_verb(tmp_path: Path) -> None:
    server = ApiServer({})
    async with session(tmp_path, server) as api:
        assert await is_allowed(api, PATCH)
        server.unallowed = {("patch", "nodes")}
        assert not await is_allowed(api, PATCH)
        assert await is_allowed(api, GET)


async def test_each_missing_permission_is_named_with_the_rule_that_grants_it(
    tmp_path: Path,
) -> None:
    server, check = ApiServer({}), Check("pods.rbac", BOTH)
    async with session(tmp_path, server) as api:
        found = await review_rights(api, check, "here", GET, PATCH)
        assert [each.verdict for each in found] == [Verdict.OK]
        server.unallowed = {("patch", "nodes")}
        found = await review_rights(api, check, "here", GET, PATCH)
    rule = 'apiGroups [""], resources ["nodes"], verbs [patch]'
    is_bad(found[0], "failure", "may not patch nodes node-1", rule)
    assert len(found) == 1


async def test_a_server_that_refuses_access_reviews_is_an_error(tmp_path: Path) -> None:
    server = ApiServer({})
    server.forbidden = {("create", REVIEWS)}
    async with session(tmp_path, server) as api:
        with pytest.raises(ApiError, match=r"may not create selfsubjectaccessreviews.*\[create\]"):
            await is_allowed(api, PATCH)


async def test_an_access_review_is_posted_as_json(tmp_path: Path) -> None:
    async with Server(says('{"status": {"allowed": true}}')).serving() as server:
        url, user = f"http://127.0.0.1:{server.port}", {"token": "sesame"}
        path = kubeconfig(tmp_path / "kubeconfig", url, dict(user))
        async with Sessions().session(path) as api:
            assert await is_allowed(api, Right("patch", "nodes", name="node-1"))
        (head,), (body,) = server.heads, server.bodies
    assert head.startswith(f"POST {REVIEWS} HTTP/1.1")
    assert "Content-Type: application/json" in head
    assert json.loads(body)["spec"]["resourceAttributes"] == {
        "verb": "patch",
        "resource": "nodes",
        "name": "node-1",
    }


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"status": {"allowed": "yes"}}'])
async def test_an_invalid_access_review_allows_nothing(tmp_path: Path, body: bytes) -> None:
    async with serving(lambda _: page(body)) as port:
        server = ApiServer({})
        server.port = port
        async with Sessions().session(server.kubeconfig(tmp_path / "kubeconfig")) as api:
            assert not await is_allowed(api, PATCH)


async def test_lists_and_watches_are_tried_with_requests(tmp_path: Path) -> None:
    nodes = Collection()
    nodes.put(named("node-1", ""))
    server = ApiServer({NODES: nodes})
    async with session(tmp_path, server) as api:
        assert await try_list(api, NODES, {}) is None
        assert await try_watch(api, NODES, {}) is None
        server.forbidden = {("list", NODES), ("watch", NODES)}
        for attempt in (try_list, try_watch):
            error = await attempt(api, NODES, {})
            assert error is not None
            assert error.status == 403
    assert [query.get("limit") for _, query in server.requests] == ["1", None, "1", None]


def test_a_permission_is_written_as_in_kubectl() -> None:
    rights = [
        Right("list", "pods"),
        Right("watch", "resourceslices", "resource.k8s.io"),
        Right("get", "configmaps", name="gpu", namespace="mon"),
    ]
    assert [str(each) for each in rights] == [
        "list pods",
        "watch resourceslices.resource.k8s.io",
        "get configmaps gpu in mon",
    ]
    assert "a Role in mon with" in rights[2].fix()
    assert json.dumps(["pods"])[1:-1] in rights[0].fix()


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (TransientError("no file"), "set kubeconfig"),
        (ApiError("refused"), "the address is correct"),
        (ApiError("who?", status=401), "renew the token"),
        (ApiError("no", status=403), "system:basic-user"),
        (ApiError("broken", status=500), "the log of the API server"),
    ],
    ids=str,
)
def test_the_fix_depends_on_the_response_of_the_server(error: TransientError, fix: str) -> None:
    assert fix in fix_for(error)
