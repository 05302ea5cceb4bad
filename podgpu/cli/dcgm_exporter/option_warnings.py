"""Log messages about options that have another effect than in dcgm-exporter, or none."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from podgpu.cli.dcgm_exporter.option import Support
from podgpu.cli.dcgm_exporter.settings import Settings

_REQUIRES: Final = {
    "kubernetes-enable-pod-labels": "kubernetes",
    "kubernetes-enable-pod-uid": "kubernetes",
    "kubernetes-enable-dra": "kubernetes",
    "kubernetes-virtual-gpus": "kubernetes",
    "nvidia-resource-names": "kubernetes",
    "kubernetes-pod-label-allowlist-regex": "kubernetes-enable-pod-labels",
}


class Remark(NamedTuple):
    """A message for the log.

    Attributes:
        level: log level of `logging`.
        text: the message.
    """

    level: int
    text: str


def remarks(
    settings: Settings, ignored: Sequence[str], warnings: Sequence[str]
) -> Iterator[Remark]:
    """Yield the messages to log at the start.

    Args:
        settings: the options.
        ignored: words of the command line that are not read.
        warnings: further warnings.
    """
    for text in warnings:
        yield Remark(logging.WARNING, text)
    if ignored:
        yield Remark(
            logging.WARNING,
            f"{ignored[0]} is not an option; as in dcgm-exporter, everything from there on is "
            f"ignored: {' '.join(ignored)}; write a switch as -k or -k=true",
        )
    for option in settings.changed():
        if option.support is Support.NOT_SUPPORTED:
            origin = settings.origin(option.name)
            yield Remark(logging.WARNING, f"{origin} has no effect: {option.why}")
    changed = {option.name for option in settings.changed()}
    for name, needed in _REQUIRES.items():
        if name in changed and not settings.switch(needed):
            origin = settings.origin(name)
            yield Remark(logging.WARNING, f"{origin} has no effect without --{needed}")
    if settings.given("labels") and settings.switch("use-old-namespace"):
        origin = settings.origin("use-old-namespace")
        yield Remark(logging.WARNING, f"{origin} has no effect with {settings.origin('labels')}")
    needless = [
        settings.origin(option.name)
        for option in settings.changed()
        if option.support in {Support.NOT_NEEDED, Support.RENAMED}
    ]
    if needless:
        yield Remark(
            logging.INFO,
            f"not needed in podgpu: {', '.join(needless)}; see docs/migrating.md",
        )
