"""Read settings from dcgm-exporter's YAML file."""

from pathlib import Path

from config.errors import ConfigError, Problem
from config.loader import parse_struct, read
from podgpu.cli.dcgm_exporter.config_file_schema import Document
from podgpu.cli.dcgm_exporter.go_values import milliseconds
from podgpu.cli.dcgm_exporter.settings import Setting


def settings(path: Path) -> tuple[dict[str, Setting], list[str]]:
    """Return the settings of the file, by option name, and warnings.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    origin = str(path)
    document = parse_struct(read(path), Document, origin=origin)
    found: dict[str, Setting] = {}
    if file := document.metrics.file.strip():
        found["collectors"] = Setting(file, f"{origin}: metrics.file")
    if document.metrics.enable_exporter_metrics:
        place = f"{origin}: metrics.enableExporterMetrics"
        found["enable-exporter-metrics"] = Setting(True, place)
    for place, text in _intervals(document):
        try:
            number = milliseconds(text.strip())
        except ValueError as error:
            raise ConfigError(origin, [Problem(place, str(error))]) from None
        found["collect-interval"] = Setting(number, f"{origin}: {place}")
    warnings = [
        f"{origin}: {place}: podgpu reads all fields at one interval, so this has no effect"
        for place in _separate_intervals(document)
    ]
    return found, warnings


def _intervals(document: Document) -> list[tuple[str, str]]:
    if document.collection.interval.strip():
        return [("collection.interval", document.collection.interval)]
    return [
        (f"collections[{at}].every", each.every)
        for at, each in enumerate(document.collections)
        if each.includes_all
    ]


def _separate_intervals(document: Document) -> list[str]:
    groups = [
        f"collection.watchGroups[{at}]" for at in range(len(document.collection.watch_groups))
    ]
    named = [
        f"collections[{at}]"
        for at, each in enumerate(document.collections)
        if not each.includes_all
    ]
    return groups + named
