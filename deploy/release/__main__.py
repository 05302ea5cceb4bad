"""Run one step of a release: `python -m deploy.release STEP`. It needs no other Python package."""

import sys
from collections.abc import Callable, Mapping
from typing import Final

from deploy.release import artefacts, publishing
from deploy.release.settings import ReleaseError, Settings

STEPS: Final[Mapping[str, Callable[[Settings], None]]] = {
    "check": artefacts.check,
    "python": artefacts.python,
    "image": artefacts.image,
    "sbom": artefacts.sbom,
    "chart": artefacts.chart,
    "sums": publishing.sums,
    "provenance": publishing.provenance,
    "push": publishing.push,
    "sign": publishing.sign,
    "verify": publishing.verify,
}


def main(arguments: list[str]) -> int:
    """Run the step and return the exit status: 0, or 2 if the step is not possible."""
    if len(arguments) != 1 or arguments[0] not in STEPS:
        print(f"usage: python -m deploy.release {'|'.join(STEPS)}", file=sys.stderr)
        return 2
    try:
        STEPS[arguments[0]](Settings.read())
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
