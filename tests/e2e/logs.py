"""Read the log records that a Collector has written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.points import attributes_of, messages


@dataclass(frozen=True, slots=True)
class Log:
    """A log record.

    Attributes:
        resource: attributes of the resource.
        time_ns, observed_ns: since the Unix epoch.
        severity: as text.
    """

    resource: Mapping[str, Any]
    scope: str
    name: str
    body: str
    attributes: Mapping[str, Any]
    time_ns: int
    observed_ns: int
    severity: str


def logs(file: Path) -> Iterator[Log]:
    """Read a file with one request a line; the last line may be incomplete after a kill."""
    for message in messages(file):
        for under in message.get("resourceLogs", ()):
            resource = attributes_of(under.get("resource", {}).get("attributes", ()))
            for scoped in under.get("scopeLogs", ()):
                for record in scoped.get("logRecords", ()):
                    attributes = attributes_of(record.get("attributes", ()))
                    yield Log(
                        resource,
                        scoped.get("scope", {}).get("name", ""),
                        record.get("eventName") or attributes.get("event.name", ""),
                        record.get("body", {}).get("stringValue", ""),
                        attributes,
                        int(record.get("timeUnixNano", 0)),
                        int(record.get("observedTimeUnixNano", 0)),
                        record.get("severityText", ""),
                    )
