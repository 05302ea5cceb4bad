"""Options of the source `dcgm` for the contract tests."""

import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from config.value_types import Duration
from sources.dcgm.options import Options
from tests.sources.dcgm.reading import PAGES


@cache
def _exporter() -> str:
    """Return the address of a metrics page that a separate thread serves."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = (PAGES / "4.2.prom").read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/metrics"


def options(_: Path) -> Options:
    return Options(url=_exporter(), interval=Duration.parse("1s"))
