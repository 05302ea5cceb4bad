"""What can be set for the textfile sink."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from config.option_markers import AtLeast, Doc
from config.value_types import Duration
from pipeline.exposition.options import PageOptions


class Options(PageOptions, frozen=True, kw_only=True):
    """Options of the textfile sink."""

    path: Annotated[Path, Doc("The file, in a folder that is there; its name ends with .prom.")]
    interval: Annotated[Duration, AtLeast("1s"), Doc("Time between two writes.")] = Duration.parse(
        "10s"
    )
    keep: Annotated[bool, Doc("Whether the file stays when podgpu stops.")] = False

    def problems(self) -> Iterable[tuple[str, str]]:
        """The collector passes over files of other names."""
        if self.path.suffix != ".prom":
            yield "path", f"{self.path} doesn't end with .prom: node_exporter would not read it"

    def exclusive(self) -> Iterable[str]:
        """Two that replace one file would take turns for ever."""
        return (f"the file {os.path.normpath(self.path)}",)
