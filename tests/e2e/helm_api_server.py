"""A fake API server for helm's `lookup`: it has a list of kinds and one Secret."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

_KINDS = {
    "kind": "APIResourceList",
    "groupVersion": "v1",
    "resources": [
        {"name": "secrets", "singularName": "secret", "namespaced": True, "kind": "Secret"}
        | {"verbs": ["get", "list"]},
        {"name": "namespaces", "singularName": "namespace", "namespaced": False}
        | {"kind": "Namespace", "verbs": ["get", "list"]},
    ],
}
_RESPONSES: Mapping[str, Any] = {
    "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": _KINDS,
}


@contextmanager
def answering(folder: Path, secret: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """Run the server on loopback.

    Args:
        folder: for the kubeconfig.
        secret: the only existing Secret.

    Yields:
        A kubeconfig for the server.
    """
    responses = dict(_RESPONSES)
    if secret is not None:
        at = secret["metadata"]
        responses[f"/api/v1/namespaces/{at['namespace']}/secrets/{at['name']}"] = secret

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
            body = json.dumps(responses.get(path, {**missing, "reason": "NotFound"})).encode()
            self.send_response(200 if path in responses else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = folder / "kubeconfig"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "clusters": [
                    {
                        "name": "it",
                        "cluster": {"server": f"http://127.0.0.1:{server.server_port}"},
                    }
                ],
                "users": [{"name": "it", "user": {}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            }
        )
    )
    try:
        yield config
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
