"""A cluster to try podgpu on, until Ctrl-C: `python -m tests.e2e.playground`."""

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
The cluster is up: one node, four GPUs that are simulated, {held} of them held by {pods}.
In another terminal, with a kubectl of yours:

    export KUBECONFIG={kubeconfig}
    export PATH=$PATH:{helm}          # helm is there

{image}

docs/install.md tells how to install podgpu. What differs here from a node with a driver of its own
is in {values}: give `helm install` `-f {values}`.

{text}
`podgpu doctor` will tell of one failure there, and be right: the node itself has no driver. (Where
nobody keeps this machine's clock right, it warns of that too.)
Ctrl-C ends it all.
"""

_LOADED = "podgpu's image is on the node: {name}"
_LEFT = """\
podgpu's image is not on the node, where the chart will look for {name}.
From an archive, as `docker save` writes it, it comes there with:

    {ctr} --address {socket} -n k8s.io images import --local ARCHIVE"""


@contextmanager
def until_signal() -> Iterator[Callable[[], None]]:
    """Let SIGINT, SIGTERM and SIGHUP end what is done inside, once: the clearing up is let be.

    Yields:
        What waits for one of them.
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
    """Bring it up, tell how to go on, and wait."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.playground", description=__doc__)
    parser.add_argument(
        "--without-image",
        action="store_true",
        help="don't build podgpu's image and give it to the node: that is part of what is tried",
    )
    asked = parser.parse_args(arguments)
    if lacks := missing_rights():
        print(f"{lacks}: a cluster needs root on a machine of its own", file=sys.stderr)
        return 1
    with until_signal() as wait:
        peers.build()
        debian.runtime()
        made = None if asked.without_image else image.build()
        print("starting a cluster; where tests have one, they end first", flush=True)
        with Cluster() as cluster, playing(cluster, made) as site:
            print(instructions(site, with_image=made is not None), flush=True)
            wait()
    return 0


def instructions(site: Playground, *, with_image: bool) -> str:
    """Return what somebody who wants to try podgpu there has to know."""
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
