"""The Event on a pod that an XID error affected: its text, and when it is written."""

from typing import Any

import pytest

from tests.sinks.events.support import GPU, Bench, sleep, victim

pytestmark = pytest.mark.looptime

ADVICE = "; advice: restart the program"
"""The end of the message about XID 31."""


async def test_an_error_results_in_an_event_on_the_pod() -> None:
    async with Bench().running() as bench:
        bench.add_error(code=79)
        await sleep(7)
    event = bench.event()
    assert event.pop("metadata")["namespace"] == "ml"
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "ml",
            "name": "a",
            "uid": "uid-a",
            "fieldPath": "spec.containers{main}",
        },
        "type": "Warning",
        "reason": "GpuXidError",
        "message": f"XID 79 (GPU has fallen off the bus) on {GPU}, which this pod held and used; "
        "advice: reboot the node",
        "source": {"component": "podgpu", "host": "node-1"},
        "reportingComponent": "podgpu",
        "reportingInstance": "node-1",
        "firstTimestamp": "2027-01-15T08:00:00Z",
        "lastTimestamp": "2027-01-15T08:00:00Z",
        "count": 1,
    }
    [path] = bench.api.objects
    assert path.startswith("/api/v1/namespaces/ml/events/a.")


async def test_the_event_is_written_after_the_wait_for_the_kernel_log() -> None:
    async with Bench().running() as bench:
        await sleep(1)
        error = bench.add_error()
        await sleep(3)
        assert bench.events() == []
        victims = (victim("a", GPU, uid="uid-a", caused=True),)
        bench.update_error(error, pid=1234, process="python", victims=victims)
        await sleep(4)
        assert bench.requests() == [(7, "POST")]
        message = bench.event()["message"]
    assert message.endswith(
        "; the kernel log names a process of this pod: python (pid 1234 on the node)" + ADVICE
    )


async def test_details_that_arrive_later_result_in_no_second_event() -> None:
    async with Bench().running() as bench:
        error = bench.add_error()
        await sleep(7)
        bench.update_error(error, pid=1234, process="python")
        await sleep(3600)
        assert bench.requests() == [(6, "POST")]


async def test_details_of_a_process_are_not_shown_to_other_pods() -> None:
    async with Bench().running() as bench:
        bench.add_error(
            victim("a", GPU, uid="uid-a"),
            victim("b", GPU, uid="uid-b", caused=True),
            pid=77,
            process="secret-model",
        )
        await sleep(7)
    by_pod = {event["involvedObject"]["name"]: event["message"] for event in bench.events()}
    assert "secret-model (pid 77 on the node)" in by_pod["b"]
    assert by_pod["a"].endswith(
        "; the kernel log names a process that is not known to be this pod's" + ADVICE
    )


RELATIONS = {
    (True, True): ", which this pod held and used",
    (True, False): ", which this pod held",
    (False, True): ", which this pod used",
}


@pytest.mark.parametrize(("flags", "text"), RELATIONS.items())
async def test_the_message_says_if_the_pod_held_or_used_the_device(
    flags: tuple[bool, bool], text: str
) -> None:
    async with Bench().running() as bench:
        holds, uses = flags
        bench.add_error(victim("a", GPU, uid="uid-a", holds=holds, uses=uses))
        await sleep(7)
    what = "XID 31 (Page fault in the GPU's memory)"
    assert bench.event()["message"] == f"{what} on {GPU}{text}{ADVICE}"


async def test_an_unknown_code_is_reported_without_a_description_and_advice() -> None:
    async with Bench().running() as bench:
        bench.add_error(code=4711)
        await sleep(7)
    assert bench.event()["message"] == f"XID 4711 on {GPU}, which this pod held and used"


async def test_a_process_name_is_cut_and_escaped() -> None:
    """Any user of the node can give a process any name."""
    async with Bench().running() as bench:
        victims = victim("a", GPU, uid="uid-a", caused=True)
        bench.add_error(victims, pid=1, process="\x1b[31m\n" + "x" * 5000)
        await sleep(7)
    message = bench.event()["message"]
    assert message.isprintable()
    assert len(message) <= 1024


CONTAINERS: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "one": ([{"container": "main"}], "spec.containers{main}"),
    "one of unknown name": ([{"container": ""}], None),
    "several": ([{"container": "main"}, {"container": "side"}], None),
    "the one with the process, of several": (
        [{"container": "main"}, {"container": "side", "caused": True}],
        "spec.containers{side}",
    ),
}


@pytest.mark.parametrize(("victims", "path"), CONTAINERS.values(), ids=CONTAINERS)
async def test_a_pod_has_one_event_for_all_its_containers(
    victims: list[dict[str, Any]], path: str | None
) -> None:
    async with Bench().running() as bench:
        bench.add_error(*(victim("a", GPU, uid="uid-a", **one) for one in victims))
        await sleep(7)
    assert bench.event()["involvedObject"].get("fieldPath") == path
    assert bench.event()["count"] == 1


async def test_the_event_of_a_pod_with_a_long_name_has_a_valid_name() -> None:
    name = "a" * 227 + "." + "b" * 25
    async with Bench().running() as bench:
        bench.add_error(victim(name, GPU, uid="uid-a"))
        await sleep(7)
    made = bench.event()["metadata"]["name"]
    assert len(made) <= 253
    assert bench.event()["involvedObject"]["name"] == name


# -- which errors get an Event


UNUSABLE_PODS = {
    "without a uid": {"pod": "a", "uid": ""},
    "without a name": {"pod": "", "uid": "uid-a"},
    "without a namespace": {"pod": "a", "uid": "uid-a", "namespace": ""},
    "with a name that is a path": {"pod": "a/../../secrets", "uid": "uid-a"},
    "with a namespace that is a path": {"pod": "a", "uid": "uid-a", "namespace": "../x"},
}


@pytest.mark.parametrize("fields", UNUSABLE_PODS.values(), ids=UNUSABLE_PODS)
async def test_a_pod_without_a_usable_name_gets_no_event_and_is_counted(
    fields: dict[str, str],
) -> None:
    async with Bench().running() as bench:
        pod = fields.pop("pod")
        bench.add_error(victim(pod, GPU, **fields), victim("b", GPU, uid="uid-b"))  # type: ignore[arg-type]
        await sleep(7)
        assert bench.lost("nameless") == 1
    assert bench.event()["involvedObject"]["name"] == "b"


async def test_codes_that_are_not_configured_are_not_reported() -> None:
    async with Bench(codes=(48, 79)).running() as bench:
        for code in (31, 79, 43, 48):
            bench.add_error(code=code)
        await sleep(7)
    assert [event["message"][:6] for event in bench.events()] == ["XID 79", "XID 48"]


async def test_namespaces_that_are_not_configured_get_no_event() -> None:
    async with Bench(namespaces=("team-*", "ml")).running() as bench:
        names = ("ml", "kube-system", "team-a", "xteam-a")
        bench.add_error(*(victim("a", GPU, uid="uid-a", namespace=name) for name in names))
        await sleep(7)
    assert [event["metadata"]["namespace"] for event in bench.events()] == ["ml", "team-a"]


async def test_an_error_without_victims_results_in_no_event() -> None:
    async with Bench().running() as bench:
        bench.errors.append(bench.add_error())
        bench.errors = [bench.errors[0].__class__(1, GPU, 79, bench.errors[0].at, ())]
        bench.show()
        await sleep(60)
    assert bench.events() == []
