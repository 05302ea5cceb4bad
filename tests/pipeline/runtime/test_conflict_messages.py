"""Tests of what the publisher logs about pods whose claims on a device contradict each other."""

import logging
from dataclasses import replace

import pytest

from pipeline.base.channels import Channel
from pipeline.base.hint_board import HintBoard
from pipeline.model import DevicesDiscovered, Envelope, Event, Evidence, PartialRef
from pipeline.runtime.publisher import Publisher
from tests.support.nodes import START, claim, claims, gpu, uuid_of

DEVICE = uuid_of(0)
KUBELET, ANNOTATION = Evidence.KUBELET_IDS, Evidence.SCHEDULER_ANNOTATION


async def publish(caplog: pytest.LogCaptureFixture, claimed: Event) -> None:
    """Publish a device with these claims, and capture what is logged."""
    inbox: Channel[Envelope] = Channel(10)
    publisher = Publisher(inbox, HintBoard(), logging.getLogger("podgpu.test"))
    events: list[tuple[str, Event]] = [("gpus", DevicesDiscovered((gpu(0),))), ("list", claimed)]
    for seq, (source, event) in enumerate(events, 1):
        await inbox.put(Envelope(source, source, seq, START, event))
    inbox.close()
    with caplog.at_level(logging.WARNING, "podgpu.test"):
        await publisher.run()


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
                f"device {DEVICE}: the claim of pod ml/{pod} contradicts that of another owner, "
                "and no evidence decides; podgpu shows as holders: ml/a, ml/b"
                for pod in "ab"
            ],
            id="the evidence is equal and no start is known",
        ),
    ],
)
async def test_the_log_says_which_pods_are_shown_and_why(
    caplog: pytest.LogCaptureFixture, evidence: tuple[Evidence, Evidence], logged: list[str]
) -> None:
    claimed = claims(
        *(claim(pod, DEVICE, evidence=e, share=1) for pod, e in zip("ab", evidence, strict=True))
    )
    await publish(caplog, claimed)
    assert len(caplog.messages) == len(logged)
    assert all(map(str.startswith, caplog.messages, logged))
    assert all(text.endswith("see podgpu_attribution_conflicts") for text in caplog.messages)


async def test_a_container_or_job_is_not_called_a_pod(caplog: pytest.LogCaptureFixture) -> None:
    owners = [
        ("7", "slurm://lab/7/1", Evidence.JOB_ALLOCATION),
        ("serve", "docker://8d05", Evidence.DEVICE_REQUEST),
    ]
    claimed = claims(
        *(
            replace(found, subject=PartialRef("", name, "", uid))
            for name, uid, evidence in owners
            for found in [claim(name, DEVICE, evidence=evidence, share=1)]
        )
    )
    await publish(caplog, claimed)
    (message,) = caplog.messages
    assert message.startswith(f"device {DEVICE}: container serve also claims it, but job 7 holds")
