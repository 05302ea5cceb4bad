"""Options of the sink `textfile`."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from config.option_markers import AtLeast, Doc
from config.value_types import Duration
from pipeline.exposition.options import PageOptions


class Options(PageOptions, frozen=True, kw_only=True):
    """Options of the sink `textfile`."""

    path: Annotated[
        Path, Doc("File to write, in an existing folder; its name must end with .prom.")
    ]
    interval: Annotated[Duration, AtLeast("1s"), Doc("Time between two writes.")] = Duration.parse(
        "10s"
    )
    keep: Annotated[bool, Doc("Whether to keep the file when podgpu stops.")] = False

    def problems(self) -> Iterable[tuple[str, str]]:
        """Report a file name that the collector would ignore."""
        if self.path.suffix != ".prom":
            yield "path", f"{self.path} does not end with .prom: node_exporter would ignore it"

    def exclusive(self) -> Iterable[str]:
        """Return the resources that only one sink may use: two would overwrite the same file."""
        return (f"the file {os.path.normpath(self.path)}",)
