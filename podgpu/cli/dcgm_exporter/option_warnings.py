"""What has to be said of options that do something else here than in dcgm-exporter, or nothing."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from podgpu.cli.dcgm_exporter.option import Fate
from podgpu.cli.dcgm_exporter.settings import Settings

_ONLY_WITH: Final = {
    "kubernetes-enable-pod-labels": "kubernetes",
    "kubernetes-enable-pod-uid": "kubernetes",
    "kubernetes-enable-dra": "kubernetes",
    "kubernetes-virtual-gpus": "kubernetes",
    "nvidia-resource-names": "kubernetes",
    "kubernetes-pod-label-allowlist-regex": "kubernetes-enable-pod-labels",
}


class Remark(NamedTuple):
    """One line for the log.

    Attributes:
        level: of `logging`.
        text: the line.
    """

    level: int
    text: str


def remarks(
    settings: Settings, ignored: Sequence[str], warnings: Sequence[str]
) -> Iterator[Remark]:
    """Yield what is to be said at the start.

    Args:
        settings: what was set.
        ignored: words of the command line that nobody reads.
        warnings: what else there is to be warned of.
    """
    for text in warnings:
        yield Remark(logging.WARNING, text)
    if ignored:
        yield Remark(
            logging.WARNING,
            f"{ignored[0]} is no option, and as in dcgm-exporter nothing from there on is read: "
            f"{' '.join(ignored)}; write a switch as -k or -k=true",
        )
    for option in settings.changed():
        if option.fate is Fate.NOT_SUPPORTED:
            origin = settings.origin(option.name)
            yield Remark(logging.WARNING, f"{origin} has no effect: {option.why}")
    changed = {option.name for option in settings.changed()}
    for name, needed in _ONLY_WITH.items():
        if name in changed and not settings.switch(needed):
            origin = settings.origin(name)
            yield Remark(logging.WARNING, f"{origin} has no effect without --{needed}")
    if settings.given("labels") and settings.switch("use-old-namespace"):
        origin = settings.origin("use-old-namespace")
        yield Remark(logging.WARNING, f"{origin} has no effect beside {settings.origin('labels')}")
    needless = [
        settings.origin(option.name)
        for option in settings.changed()
        if option.fate in {Fate.NOT_NEEDED, Fate.RENAMED}
    ]
    if needless:
        yield Remark(
            logging.INFO,
            f"not needed here: {', '.join(needless)}; docs/migrating.md says why",
        )
