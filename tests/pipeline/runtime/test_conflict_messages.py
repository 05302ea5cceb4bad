"""Tests of what the publisher logs about pods whose claims on a device contradict each other."""

import logging

import pytest

from pipeline.base.channels import Channel
from pipeline.base.hint_board import HintBoard
from pipeline.model import DevicesDiscovered, Envelope, Event, Evidence
from pipeline.runtime.publisher import Publisher
from tests.support.nodes import START, claim, claims, gpu, uuid_of

DEVICE = uuid_of(0)
KUBELET, ANNOTATION = Evidence.KUBELET_IDS, Evidence.SCHEDULER_ANNOTATION


@pytest.mark.parametrize(
    ("evidence", "logged"),
    [
        pytest.param(
            (KUBELET, ANNOTATION),
            [f"device {DEVICE}: pod ml/b also claims it, but ml/a holds it; the holder's evi"],
            id="the evidence of one is stronger",
        ),
        pytest.param(
            (KUBELET, KUBELET),
            [
                f"device {DEVICE}: the claim of pod ml/{pod} contradicts that of another pod, and "
                "no evidence decides; podgpu shows as holders: ml/a, ml/b"
                for pod in "ab"
            ],
            id="the evidence is equal and no start is known",
        ),
    ],
)
async def test_the_log_says_which_pods_are_shown_and_why(
    caplog: pytest.LogCaptureFixture, evidence: tuple[Evidence, Evidence], logged: list[str]
) -> None:
    inbox: Channel[Envelope] = Channel(10)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    claimed = claims(
        *(claim(pod, DEVICE, evidence=e, share=1) for pod, e in zip("ab", evidence, strict=True))
    )
    events: list[tuple[str, Event]] = [("gpus", DevicesDiscovered((gpu(0),))), ("list", claimed)]
    for seq, (source, event) in enumerate(events, 1):
        await inbox.put(Envelope(source, source, seq, START, event))
    inbox.close()
    with caplog.at_level(logging.WARNING, "podgpu.test"):
        await publisher.run()
    assert len(caplog.messages) == len(logged)
    assert all(map(str.startswith, caplog.messages, logged))
    assert all(text.endswith("see podgpu_attribution_conflicts") for text in caplog.messages)
