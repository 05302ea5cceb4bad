"""Reads the files of credentials and certificates for a server with Prometheus' HTTP API."""

import argparse
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pipeline.base.errors import PermanentError
from pipeline.base.safe_text import line
from podgpu.cli.client_options import access_of
from podgpu.cli.daemon_client import authorization, context
from podgpu.cli.usage.prometheus.server_options import Server, checked_url

_MOST_TOKEN: Final = 1 << 16


def server_of(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Server:
    """Return the server that the options of `add_prometheus` and the environment name.

    Raises:
        PermanentError: an option, a variable or a file cannot be used.
    """
    url = checked_url(arguments.prometheus)
    access = access_of(arguments, environ)
    headers = dict(arguments.headers or ())
    secret = authorization(access)
    if arguments.bearer_token_file is not None:
        if secret:
            raise PermanentError("--bearer-token-file and --user exclude each other: give only one")
        secret = f"Bearer {_token(arguments.bearer_token_file)}"
    if secret:
        headers["Authorization"] = secret
    is_tls = url.startswith("https:")
    if not is_tls:
        for given in (access.ca_file, access.cert_file):
            # Only options are checked: a variable applies to all addresses.
            if given is not None and given.option:
                raise PermanentError(f"{given.origin} is for TLS: give an https:// address")
        if secret and not access.insecure and not _is_loopback(urlsplit(url).hostname or ""):
            raise PermanentError(
                f"{line(url)}: over plain HTTP the password or token could be read on the "
                "network; give an https:// address, or --insecure to send it anyway"
            )
    return Server(url, headers, float(arguments.query_timeout), context(access) if is_tls else None)


def _token(file: Path) -> str:
    place = f"--bearer-token-file {line(str(file))}"
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_TOKEN + 1).strip()
    except OSError as error:
        raise PermanentError(f"{place}: {error.strerror}; check the path") from None
    if not content or len(content) > _MOST_TOKEN or not content.isascii() or b" " in content:
        raise PermanentError(f"{place}: must contain only the token, on one line")
    if not content.decode().isprintable():
        raise PermanentError(f"{place}: must contain only the token, on one line")
    return content.decode()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
