"""Options of the dcgm source."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import ByteSize, Duration
from pipeline.base.safe_text import without_query

_LEAST_AGE = 60.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where the exporter's page is and how it is read."""

    url: Annotated[
        str,
        Doc("The exporter's page, such as http://localhost:9400/metrics; or give path."),
    ] = ""
    path: Annotated[
        Path | None,
        Doc("The file that an exporter writes for node_exporter, such as dcgm.prom; or give url."),
    ] = None
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How often the page is read. Not more often than the exporter renews it."),
    ] = Duration.parse("15s")
    timeout: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc("How long the exporter may take to answer."),
    ] = Duration.parse("10s")
    max_size: Annotated[
        ByteSize,
        AtLeast("1KiB"),
        Doc("A larger page is not read."),
    ] = ByteSize.parse("16MiB")
    max_age: Annotated[
        Duration | None,
        AtLeast("1s"),
        Doc(
            "How long a file stands that nobody writes any more; three intervals, and a minute at "
            "least, if left out."
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        Doc("Certificates that the exporter's is checked with, instead of the system's."),
    ] = None
    insecure: Annotated[bool, Doc("Whether the exporter's certificate goes unchecked.")] = False
    bearer_token_file: Annotated[
        Path | None, Doc("A file with a token, sent with each request.")
    ] = None
    username: Annotated[str, Doc("Who asks, where the exporter wants basic authentication.")] = ""
    password_file: Annotated[Path | None, Doc("A file with the password of username.")] = None

    @property
    def place(self) -> str:
        """The page for people: without a query and the like, which may have a secret in it."""
        if self.path is not None:
            return str(self.path)
        return without_query(self.url)

    @property
    def oldest(self) -> float:
        """Seconds after which a file that nobody writes is no longer believed."""
        if self.max_age is not None:
            return float(self.max_age)
        return max(3 * float(self.interval), _LEAST_AGE)

    def problems(self) -> Iterable[tuple[str, str]]:
        """Say what doesn't go together."""
        if bool(self.url) == (self.path is not None):
            both = "there is a path too: give one of the two"
            yield "url", both if self.url else "give a url, or the path of a file"
        elif self.url:
            yield from self._url_problems()
            if self.max_age is not None:
                yield "max_age", "is about a file: leave it out with a url"
        else:
            for name in ("ca_file", "bearer_token_file", "password_file", "username", "insecure"):
                if getattr(self, name):
                    yield name, "is about a url: leave it out with a path"
        if bool(self.username) != (self.password_file is not None):
            missing = "password_file" if self.username else "username"
            yield missing, "username and password_file go together: give both"
        if self.username and self.bearer_token_file is not None:
            yield "bearer_token_file", "there is a username too: give one of the two"

    def _url_problems(self) -> Iterable[tuple[str, str]]:
        parts = _parts(self.url)
        if parts is None:
            yield "url", "is no address: write for example http://localhost:9400/metrics"
        elif parts.username is not None or parts.password is not None:
            yield "url", "has a user in it: give username and password_file instead"
        elif parts.scheme == "http" and (self.ca_file is not None or self.insecure):
            yield "url", "is without TLS, so ca_file and insecure mean nothing: write https"


def _parts(url: str) -> SplitResult | None:
    """Return the parts of an address; None if it isn't one of a page."""
    try:
        parts = urlsplit(url)
        whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    if not whole or parts.scheme not in {"http", "https"}:
        return None
    return parts if url.isprintable() and " " not in url else None
