"""A real S3 server (versitygw) on loopback. Its objects are files of a folder."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import peers
from tests.e2e.processes import Process, free_ports, get, wait_until

ACCESS = "test-access"
SECRET = "test-secret"  # noqa: S105 - of a server on loopback
BUCKET = "usage"


class S3Server:
    """The server, with one bucket. It can be killed and started again.

    Args:
        folder: an empty folder for objects and logs.
        address: an address of this machine on which it listens.
        users: socket of the server of users (`S3Users`); without one, there is only the root user.
    """

    def __init__(self, folder: Path, address: str = "127.0.0.1", users: str = "") -> None:
        self.bucket = folder / "objects" / BUCKET
        """The folder of the bucket. An object is a file with its key as path."""
        self.bucket.mkdir(parents=True)
        self._folder = folder
        self._address = address
        self._users = ["--iam-standalone-endpoint", users] if users else []
        (self.port,) = free_ports(1)
        self._process: Process | None = None
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command: list[str | Path] = [
            *(peers.versitygw(), "--port", f"{self._address}:{self.port}"),
            *("--access", ACCESS, "--secret", SECRET, "--quiet", *self._users),
            *("posix", self._folder / "objects"),
        ]
        self._process = Process(command, self._folder / "versitygw.log")
        wait_until(self._answers, "the S3 server answers")

    def kill(self) -> None:
        """End it by SIGKILL."""
        if self._process is not None:
            self._process.stop(signal.SIGKILL)

    def environment(self, port: int | None = None) -> dict[str, str]:
        """Return the variables with which podgpu uses the server.

        Args:
            port: port of a proxy in front of it; default: its own.
        """
        return {
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT": f"http://{self._address}:{port or self.port}",
            "AWS_ALLOW_HTTP": "true",
        }

    def keys(self, prefix: str) -> list[str]:
        """Return the keys below a prefix, read from the files."""
        root = self.bucket / prefix
        files = [path for path in root.rglob("*.parquet") if path.is_file()]
        return sorted(str(path.relative_to(root)) for path in files)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.running, self._process.output()[-2000:]
        try:
            get(self.port, "/", host=self._address)
        except OSError:
            return False
        return True


@contextmanager
def serving(folder: Path, address: str = "127.0.0.1", users: str = "") -> Iterator[S3Server]:
    """Run a server for the context. The arguments are those of `S3Server`."""
    server = S3Server(folder, address, users)
    try:
        yield server
    finally:
        server.kill()
