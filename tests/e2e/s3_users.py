"""The users of a real S3 server, each with an IAM policy that the server enforces."""

import itertools
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e import peers
from tests.e2e.processes import Process, free_ports, get, wait_until
from tests.e2e.s3_server import ACCESS, SECRET


class S3Users:
    """The IAM server of versitygw. It grants nothing that a policy does not allow.

    Args:
        folder: an empty folder for the users and the log.
    """

    def __init__(self, folder: Path) -> None:
        (self._port,) = free_ports(1)
        self.socket = f"@podgpu-tests-s3-users-{self._port}"
        """The socket that the S3 server asks."""
        command: list[str | Path] = [
            *(peers.versitygw(), "--port", f"127.0.0.1:{self._port}"),
            *("--access", ACCESS, "--secret", SECRET, "--quiet"),
            *("iam", "--dir", folder, "--private-ports", self.socket),
        ]
        self._process = Process(command, folder / "iam.log")
        wait_until(self._answers, "the IAM server answers")

    def add(self, name: str, policy: str) -> dict[str, str]:
        """Add a user with a policy, and return the variables of its credentials."""
        self._ask("CreateUser", UserName=name)
        self._ask("PutUserPolicy", UserName=name, PolicyName="podgpu", PolicyDocument=policy)
        answer = self._ask("CreateAccessKey", UserName=name)
        found = dict(re.findall("<(AccessKeyId|SecretAccessKey)>([^<]+)<", answer))
        return {
            "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
        }

    def stop(self) -> None:
        """End the server."""
        self._process.stop(signal.SIGKILL)

    def _ask(self, action: str, **parameters: str) -> str:
        words = {"Action": action, "Version": "2010-05-08", **parameters}
        pairs = [("--data-urlencode", f"{name}={value}") for name, value in words.items()]
        done = subprocess.run(
            # curl signs the request.
            [
                *("curl", "--silent", "--aws-sigv4", "aws:amz:us-east-1:iam"),
                *("--user", f"{ACCESS}:{SECRET}", f"http://127.0.0.1:{self._port}/"),
                *itertools.chain(*pairs),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
        )
        assert f"<{action}Response" in done.stdout, done.stdout
        return done.stdout

    def _answers(self) -> bool:
        assert self._process.running, self._process.output()[-2000:]
        try:
            get(self._port, "/")
        except OSError:
            return False
        return True


@contextmanager
def serving_users(folder: Path) -> Iterator[S3Users]:
    """Run the server of users for the context."""
    users = S3Users(folder)
    try:
        yield users
    finally:
        users.stop()
