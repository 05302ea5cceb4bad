"""Run a cluster for manual tests until Ctrl-C: `python -m tests.e2e.playground`."""

import argparse
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from tests.e2e import debian, image, peers
from tests.e2e.kube import folders
from tests.e2e.kube.cluster import Cluster
from tests.e2e.kube.full_cluster import missing_rights
from tests.e2e.playground_setup import PODS, REPOSITORY, TAG, Playground, playing

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_UP = """\
The cluster runs: one node with four simulated GPUs, {held} of them held by {pods}.
In another terminal, with your kubectl:

    export KUBECONFIG={kubeconfig}
    export PATH=$PATH:{helm}          # contains helm

{image}

docs/install.md describes how to install podgpu. This node has no driver of its own: the values in
{values} are for this. Call `helm install` with `-f {values}`.

{text}
`podgpu doctor` reports one correct failure there: the node itself has no driver. (It also warns
if this machine's clock is not synchronized.)
Ctrl-C stops everything.
"""

_LOADED = "podgpu's image is on the node: {name}"
_LEFT = """\
podgpu's image is not on the node. The chart expects {name}.
To load it from an archive that `docker save` wrote:

    {ctr} --address {socket} -n k8s.io images import --local ARCHIVE"""


@contextmanager
def until_signal() -> Iterator[Callable[[], None]]:
    """End the block at the first SIGINT, SIGTERM or SIGHUP; further ones do not stop the cleanup.

    Yields:
        A function that waits for one of these signals.
    """
    is_ending = False

    def end(_signum: int, _frame: FrameType | None) -> None:
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            raise KeyboardInterrupt
        print("is ending", file=sys.stderr, flush=True)

    before = {each: signal.signal(each, end) for each in _ENDING}
    try:
        yield _wait
    except KeyboardInterrupt:
        if not is_ending:
            raise
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _wait() -> None:
    while True:
        signal.pause()


def main(arguments: Sequence[str] | None = None) -> int:
    """Start the cluster, print instructions, and wait."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.playground", description=__doc__)
    parser.add_argument(
        "--without-image",
        action="store_true",
        help="do not build podgpu's image and load it on the node",
    )
    asked = parser.parse_args(arguments)
    if lacks := missing_rights():
        print(f"{lacks}: a cluster needs root on a separate machine", file=sys.stderr)
        return 1
    with until_signal() as wait:
        peers.build()
        debian.runtime()
        made = None if asked.without_image else image.build()
        print("starting a cluster; if tests use one, this waits for their end", flush=True)
        with Cluster() as cluster, playing(cluster, made) as site:
            print(instructions(site, with_image=made is not None), flush=True)
            wait()
    return 0


def instructions(site: Playground, *, with_image: bool) -> str:
    """Return instructions for the user."""
    picture = _LOADED if with_image else _LEFT
    return _UP.format(
        held=sum(PODS.values()),
        pods=" and ".join(PODS),
        kubeconfig=site.kubeconfig,
        helm=peers.helm().parent,
        image=picture.format(
            name=f"{REPOSITORY}:{TAG}", ctr=peers.build().ctr, socket=folders.CRI_SOCKET
        ),
        values=site.values,
        text=textwrap.indent(site.values.read_text(), "    "),
    )


if __name__ == "__main__":
    sys.exit(main())
