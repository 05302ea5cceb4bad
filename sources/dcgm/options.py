"""The options of the dcgm source."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import ByteSize, Duration
from pipeline.base.safe_text import without_query

_MIN_AGE = 60.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a source of kind `dcgm`."""

    url: Annotated[
        str,
        Doc("The exporter's page, such as http://localhost:9400/metrics; or set path."),
    ] = ""
    path: Annotated[
        Path | None,
        Doc("The file that an exporter writes for node_exporter, such as dcgm.prom; or set url."),
    ] = None
    interval: Annotated[
        Duration,
        AtLeast("1s"),
        Doc("How often the page is read. The exporter's own interval or more is enough."),
    ] = Duration.parse("15s")
    timeout: Annotated[
        Duration,
        AtLeast("100ms"),
        Doc("How long the exporter may take to respond."),
    ] = Duration.parse("10s")
    max_size: Annotated[
        ByteSize,
        AtLeast("1KiB"),
        Doc("The maximum size of the page; a larger page is an error."),
    ] = ByteSize.parse("16MiB")
    max_age: Annotated[
        Duration | None,
        AtLeast("1s"),
        Doc(
            "How long a file that is no longer updated stays valid; default: three intervals, at "
            "least one minute."
        ),
    ] = None
    ca_file: Annotated[
        Path | None,
        Doc("CA certificates for the exporter's certificate, instead of the system's."),
    ] = None
    insecure: Annotated[bool, Doc("Whether to skip checking the exporter's certificate.")] = False
    bearer_token_file: Annotated[
        Path | None, Doc("A file with a token, sent with each request.")
    ] = None
    username: Annotated[str, Doc("The user name, if the exporter uses basic authentication.")] = ""
    password_file: Annotated[Path | None, Doc("A file with the password of username.")] = None

    @property
    def place(self) -> str:
        """The path or URL, for messages.

        The URL has no query, because a query may contain a secret.
        """
        if self.path is not None:
            return str(self.path)
        return without_query(self.url)

    @property
    def max_age_seconds(self) -> float:
        """Seconds after which a file that is no longer updated is an error."""
        if self.max_age is not None:
            return float(self.max_age)
        return max(3 * float(self.interval), _MIN_AGE)

    def problems(self) -> Iterable[tuple[str, str]]:
        """Return which options contradict each other."""
        if bool(self.url) == (self.path is not None):
            text = "path is set too: set only one of them"
            yield "url", text if self.url else "set url, or path for a file"
        elif self.url:
            yield from self._url_problems()
            if self.max_age is not None:
                yield "max_age", "applies only to a file: remove it if url is set"
        else:
            for name in ("ca_file", "bearer_token_file", "password_file", "username", "insecure"):
                if getattr(self, name):
                    yield name, "applies only to a url: remove it if path is set"
        if bool(self.username) != (self.password_file is not None):
            missing = "password_file" if self.username else "username"
            yield missing, "must be set: username and password_file require each other"
        if self.username and self.bearer_token_file is not None:
            yield "bearer_token_file", "username is set too: set only one of them"

    def _url_problems(self) -> Iterable[tuple[str, str]]:
        parts = _parts(self.url)
        if parts is None:
            yield "url", "is not a valid URL: write for example http://localhost:9400/metrics"
        elif parts.username is not None or parts.password is not None:
            yield "url", "contains a user name: set username and password_file instead"
        elif parts.scheme == "http" and (self.ca_file is not None or self.insecure):
            yield "url", "has no TLS, so ca_file and insecure have no effect: write https"


def _parts(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if it is not an HTTP URL."""
    try:
        parts = urlsplit(url)
        is_complete = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    if not is_complete or parts.scheme not in {"http", "https"}:
        return None
    return parts if url.isprintable() and " " not in url else None
