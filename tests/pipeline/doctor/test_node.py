"""The checks of a node that no component owns, each provoked."""

import asyncio
import errno
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from email.utils import formatdate
from pathlib import Path

import pytest

from config.types import ByteSize, ListenAddress
from pipeline.contracts import HttpRequest, HttpResponse
from pipeline.delivery.queue.disk.folder import Folder
from pipeline.doctor import clocks, counters, naming, ports, queues, timing, twins
from pipeline.doctor.findings import Verdict
from pipeline.doctor.mounts import file_system, is_mounted
from pipeline.doctor.processes import Holder, who_listens
from pipeline.files import reading
from pipeline.http import Listeners
from tests.pipeline.doctor.support import (
    context,
    free_port,
    healthy,
    in_this_container,
    is_bad,
    of,
    page,
    process,
    serving,
    write,
)
from tests.support.kube import ApiServer, Collection, status

# -- node.name -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "environ", "verdict"),
    [
        ("node: gpu-1\n", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Verdict.OK),
        ("", {}, Verdict.OK),
        ("", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, Verdict.WARNING),
    ],
)
async def test_the_name_of_a_pod_is_not_the_node_s(
    tmp_path: Path, text: str, environ: dict[str, str], verdict: Verdict
) -> None:
    found = await naming.examine(context(tmp_path, text, environ=environ))
    assert of(found, "node.name").verdict is verdict
    if verdict is Verdict.WARNING:
        is_bad(found[0], "warning", "in a pod that is the pod's", "spec.nodeName")


# -- clock ---------------------------------------------------------------------------------------


@asynccontextmanager
async def dated(ahead: float) -> AsyncIterator[str]:
    """A server whose clock is so many seconds ahead; 401 for everybody, as API servers may be."""

    def answer(_: str) -> bytes:
        date = formatdate(time.time() + ahead, usegmt=True)
        return page(b"", f"Date: {date}", status="401 Unauthorized")

    async with serving(answer) as port:
        yield f"http://127.0.0.1:{port}"


def pods_at(path: Path, server: str) -> str:
    write(
        path,
        json.dumps(
            {
                "current-context": "t",
                "contexts": [{"name": "t", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        ),
    )
    return f"sources: {{p: {{kind: pods, kubeconfig: {path}}}}}\n"


CLOCKS = [(0, Verdict.OK, ""), (-20, Verdict.WARNING, "ahead of"), (600, Verdict.FAILURE, "behind")]


@pytest.mark.parametrize(("ahead", "verdict", "word"), CLOCKS)
async def test_the_clock_is_held_against_the_api_server_s(
    tmp_path: Path, ahead: float, verdict: Verdict, word: str
) -> None:
    async with dated(ahead) as server:
        ctx = context(tmp_path, pods_at(tmp_path / "kubeconfig", server), synchronised=lambda: None)
        found = await timing.examine(ctx)
    told = of(found, "clock")
    assert told.verdict is verdict, told
    assert server in told.looked_at
    if word:
        is_bad(told, verdict.value, f"s {word}", "chrony")


async def test_an_address_that_is_none_is_no_clock_s_fault(tmp_path: Path) -> None:
    ctx = context(tmp_path, pods_at(tmp_path / "kubeconfig", "https://127.0.0.1:notaport"))
    assert of(await timing.examine(ctx), "clock").verdict is Verdict.OK, "the kernel's word"


async def test_a_sink_s_api_server_will_do_and_each_is_asked_once(tmp_path: Path) -> None:
    async with dated(0) as server:
        source = pods_at(tmp_path / "kubeconfig", server)
        sinks = f"sinks: {{n: {{kind: node, kubeconfig: {tmp_path}/kubeconfig}}}}\n"
        for folder, text in (("a", sinks), ("b", source + sinks)):
            ctx = context(tmp_path / folder, text, synchronised=lambda: None)
            assert of(await timing.examine(ctx), "clock").verdict is Verdict.OK


async def test_a_clock_that_nobody_keeps_right_is_a_warning(tmp_path: Path) -> None:
    found = await timing.examine(context(tmp_path, synchronised=lambda: False))
    is_bad(of(found, "clock"), "warning", "not synchronised", "chrony")


async def test_without_a_word_of_anybody_the_clock_is_not_judged(tmp_path: Path) -> None:
    found = await timing.examine(context(tmp_path, synchronised=lambda: None))
    assert of(found, "clock").verdict is Verdict.SKIPPED


def test_the_kernel_is_asked_and_nothing_is_set() -> None:
    before = time.time()
    assert clocks.kernel_synchronised() in (True, False, None)
    assert abs(time.time() - before) < 60


# -- counters ------------------------------------------------------------------------------------


async def test_a_list_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    ctx = context(tmp_path, f"counters: {{file: {tmp_path}/none.csv}}\n")
    found = await counters.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "failure", "no such file", "mount the folder")


async def test_what_is_no_list_is_not_to_be_mounted(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        ctx = context(tmp_path / f"ctx{name}", f"counters: {{file: {tmp_path}/{name}}}\n")
        told = of(await counters.examine(ctx.config.counters, ctx), "counters")
        is_bad(told, "failure", "", "give the path of a list")


async def test_a_list_that_may_not_be_read_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read any: that it may not is the call's word here."""

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    ctx = context(tmp_path, f"counters: {{file: {write(tmp_path / 'c.csv')}}}\n")
    monkeypatch.setattr(reading.os, "open", refuse)  # type: ignore[attr-defined]
    found = await counters.examine(ctx.config.counters, ctx)
    told = of(found, "counters")
    is_bad(told, "failure", f"permission denied to uid {os.geteuid()}", "let uid")
    assert "mount" not in told.mend


async def test_rows_that_mean_nothing_are_a_warning(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.csv", "DCGM_FI_DEV_GPU_UTIL, gauge, a\nDCGM_FI_DEV_NONE_SUCH, gauge, b\n"
    )
    ctx = context(tmp_path, f"counters: {{file: {path}}}\n")
    found = await counters.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "warning", "DCGM_FI_DEV_NONE_SUCH", "remove these rows")


async def test_a_list_without_a_good_row_is_a_failure(tmp_path: Path) -> None:
    path = write(tmp_path / "c.csv", "# nothing\n")
    ctx = context(tmp_path, f"counters: {{file: {path}}}\n")
    found = await counters.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "failure", "no row", "default-counters.csv")


MAP = "/api/v1/namespaces/mon/configmaps/gpu"
RULE = "Role in mon with verbs [get] on configmaps"
REFUSALS = [
    (403, "Forbidden", "403", RULE),
    (404, "NotFound", "404", RULE),
    (401, "Unauthorized", "401", "renew the token"),
    (500, "InternalError", "500", "the API server's log"),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda each: each[1])
async def test_a_configmap_that_is_not_given_is_told_with_what_mends_that(
    tmp_path: Path, refusal: tuple[int, str, str, str]
) -> None:
    code, reason, saw, mend = refusal
    server = ApiServer({MAP: Collection()})
    server.refusals[MAP] = status(code, reason, "no")
    async with server.serving():
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        ctx = context(tmp_path, f"counters: {{configmap: 'mon:gpu', kubeconfig: {kubeconfig}}}\n")
        found = await counters.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "warning", saw, mend)


async def test_a_server_that_cannot_be_reached_has_no_right_to_give(tmp_path: Path) -> None:
    server = ApiServer({})
    server.port = await free_port()
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    ctx = context(tmp_path, f"counters: {{configmap: 'mon:gpu', kubeconfig: {kubeconfig}}}\n")
    found = await counters.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "warning", "Connect call failed", "the address is right")


async def test_a_configmap_without_the_key_is_told_of_the_key(tmp_path: Path) -> None:
    async with serving(lambda _: page(b'{"data": {"list": ""}}')) as port:
        server = ApiServer({})
        server.port = port
        kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
        ctx = context(tmp_path, f"counters: {{configmap: 'mon:gpu', kubeconfig: {kubeconfig}}}\n")
        found = await counters.examine(ctx.config.counters, ctx)
    is_bad(of(found, "counters"), "warning", "its keys: list", "under the key metrics")


async def test_a_good_list_and_none_are_well(tmp_path: Path) -> None:
    path = write(tmp_path / "c.csv", "DCGM_FI_DEV_GPU_UTIL, gauge, a\n")
    for text in (f"counters: {{file: {path}, own: false}}\n", ""):
        ctx = context(tmp_path / str(len(text)), text)
        found = await counters.examine(ctx.config.counters, ctx)
        assert of(found, "counters").verdict is Verdict.OK


# -- http.port -----------------------------------------------------------------------------------


def on(port: int) -> str:
    return f'sinks: {{m: {{kind: prometheus, listen: "127.0.0.1:{port}"}}}}\n'


async def test_a_free_port_is_well_and_stays_free(tmp_path: Path) -> None:
    port = await free_port()
    for folder in ("a", "b"):
        found = await ports.examine(context(tmp_path / folder, on(port)))
        assert of(found, "http.port").verdict is Verdict.OK


OTHERS = [
    (b'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 1\n', "dcgm-exporter"),
    (b"# HELP node_load1 a\nnode_cpu_seconds_total 1\n", "node_exporter"),
    (b"# HELP up a\n# TYPE up gauge\nup 1\n", "an exporter for Prometheus"),
    (b"<html>", "a server for HTTP"),
]


@pytest.mark.parametrize(("body", "who"), OTHERS)
async def test_another_exporter_on_the_port_is_named(tmp_path: Path, body: bytes, who: str) -> None:
    def answer(path: str) -> bytes:
        return page(body if path == "/metrics" else b"hello")

    async with serving(answer) as port:
        found = await ports.examine(context(tmp_path, on(port)))
    is_bad(of(found, "http.port"), "failure", f"{who} answers there", "remove the other one")


async def test_who_speaks_no_http_is_a_stranger(tmp_path: Path) -> None:
    async with serving(lambda _: b"") as port:
        found = await ports.examine(context(tmp_path, on(port)))
    is_bad(of(found, "http.port"), "failure", "doesn't speak HTTP", "set another listen")


async def test_podgpu_itself_is_recognised_by_its_answers(tmp_path: Path) -> None:
    async def metrics(_: HttpRequest) -> HttpResponse:
        return HttpResponse(b"DCGM_FI_DEV_GPU_UTIL 1\n")

    def well() -> tuple[bool, str]:
        return True, "ok"

    listeners = Listeners(node="gpu-7", version="1", health=well, ready=well)
    async with listeners.listen(ListenAddress("127.0.0.1", 0)) as mounts:
        mounts.mount("/metrics", metrics, title="metrics")
        text = on(mounts.port)
        found = await ports.examine(context(tmp_path / "a", f"node: gpu-7\n{text}"))
        others = await ports.examine(context(tmp_path / "b", f"node: gpu-8\n{text}"))
    told = of(found, "http.port")
    assert told.verdict is Verdict.OK
    assert told.saw == "podgpu on gpu-7 answers there"
    saw = "podgpu on gpu-7 answers there, and this node is gpu-8"
    is_bad(of(others, "http.port"), "failure", saw, "remove the other one")


PODGPU_ANSWERS = "Server: podgpu"


async def test_its_status_names_the_node_where_the_first_page_does_not(tmp_path: Path) -> None:
    def answer(path: str) -> bytes:
        return page(b'{"node": "gpu-9"}' if path == "/status" else b"", PODGPU_ANSWERS)

    async with serving(answer) as port:
        found = await ports.examine(context(tmp_path, f"node: gpu-1\n{on(port)}"))
    is_bad(of(found, "http.port"), "failure", "podgpu on gpu-9", "remove the other one")


WHOSE = [
    ("ours", "ok", "podgpu answers there"),
    ("another container's", "warning", "none of this container"),
    ("nobody's who can be seen", "warning", "none of this container"),
    ("of one who can't be looked into", "ok", "podgpu answers there"),
]


@pytest.mark.parametrize("row", WHOSE, ids=lambda row: row[0])
async def test_a_podgpu_on_the_port_is_this_container_s_or_another_s(
    tmp_path: Path, row: tuple[str, str, str]
) -> None:
    whose, verdict, saw = row
    async with serving(lambda _: page(b"", PODGPU_ANSWERS, status="401 Unauthorized")) as port:
        ctx = context(tmp_path, on(port))
        write(
            ctx.roots.proc / "net/tcp6",
            "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid\n"
            f"0: 0:{port:04X} 0:0000 0A 0:0 00:0 0 0 0 4711 1\n"
            f"1: 0:{port:04X} 0:0000 01 0:0 00:0 0 0 0 4712 1\n",
        )
        if whose != "nobody's who can be seen":
            process(ctx.roots.proc, 7, *PODGPU)
        if whose in {"ours", "another container's"}:
            root = tmp_path if whose == "another container's" else None
            opened = in_this_container(ctx.roots.proc, 7, root)
            (opened / "3").symlink_to("socket:[4711]")
        told = of(await ports.examine(ctx), "http.port")
    assert (told.verdict.value, saw in told.saw) == (verdict, True), told


def test_a_connection_is_no_listener(tmp_path: Path) -> None:
    """Of two rows with that port, the one that listens counts."""
    row = "1: 0:24B8 0:0000 {} 0:0 00:0 0 0 0 {} 1\n"
    write(tmp_path / "net/tcp", "head\n" + row.format("01", 1) + row.format("0A", 2))
    process(tmp_path, 7, *PODGPU)
    (in_this_container(tmp_path, 7) / "3").symlink_to("socket:[1]")
    assert who_listens(0x24B8, tmp_path) is Holder.OTHER


async def test_who_answers_by_the_byte_costs_a_deadline_and_no_other_port(tmp_path: Path) -> None:
    enough = asyncio.Event()

    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not enough.is_set():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.05)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    port, free = server.sockets[0].getsockname()[1], await free_port()
    text = on(port).replace("}}", f'}}, n: {{kind: prometheus, listen: "127.0.0.1:{free}"}}}}')
    async with server:
        found = await ports.examine(context(tmp_path, text, deadline=1.0))
        enough.set()
        await asyncio.sleep(0.2)
    assert found[1].verdict is Verdict.OK
    is_bad(found[0], "failure", "takes too long", "remove the other one")


async def test_what_a_server_calls_itself_is_made_fit_for_a_terminal(tmp_path: Path) -> None:
    async with serving(lambda _: page(b"", "Server: \x1b[2J\x1b]0;x\x07evil")) as port:
        told = of(await ports.examine(context(tmp_path, on(port))), "http.port")
    assert "evil" in told.saw
    assert told.saw.isprintable()


async def test_an_address_that_is_not_this_machine_s_is_a_failure(tmp_path: Path) -> None:
    text = 'sinks: {m: {kind: prometheus, listen: "192.0.2.1:9400"}}\n'
    found = await ports.examine(context(tmp_path, text))
    is_bad(of(found, "http.port"), "failure", "no such address", "set another listen")


async def test_an_address_is_looked_at_once_and_none_is_no_fault(tmp_path: Path) -> None:
    assert (await ports.examine(context(tmp_path / "a")))[0].verdict is Verdict.SKIPPED
    port = await free_port()
    text = f'{on(port)}http: {{listen: "127.0.0.1:{port}"}}\n'
    assert len(await ports.examine(context(tmp_path / "b", text))) == 1


# -- twins ---------------------------------------------------------------------------------------

PODGPU = ("/opt/podgpu/bin/python3.11", "/opt/podgpu/bin/podgpu", "run", "-c", "a.yaml")
COMMANDS = [
    (PODGPU, True),
    (("podgpu", "run"), True),
    (("python", "-m", "pipeline", "dcgm-exporter", "-k"), True),
    (("python", "/usr/bin/podgpu", "doctor"), False),
    (("sh", "-c", "podgpu run"), False),
    (("kubectl", "exec", "pod", "--", "podgpu", "run"), False),
    (("vim", "podgpu", "run"), False),
    (("podgpu",), False),
    (("podgpu", "dcgm-exporter", "--print-config"), False),
    (("podgpu", "dcgm-exporter", "-a", ":9400", "-print-config=true"), False),
    (("podgpu", "dcgm-exporter", "--help"), False),
    (("podgpu", "dcgm-exporter", "-a", ":9400"), True),
    ((), False),
]


@pytest.mark.parametrize(("words", "is_one"), COMMANDS)
def test_a_process_is_podgpu_by_its_words(
    tmp_path: Path, words: tuple[str, ...], is_one: bool
) -> None:
    process(tmp_path, 7, *words)
    assert twins.daemons(tmp_path) == ([7] if is_one else [], [])


async def test_two_podgpu_on_a_node_are_a_warning(tmp_path: Path) -> None:
    ctx = context(tmp_path)
    process(ctx.roots.proc, 1, *PODGPU)
    assert of(await twins.examine(ctx), "twins").verdict is Verdict.OK
    process(ctx.roots.proc, 4711, *PODGPU)
    found = await twins.examine(ctx)
    is_bad(of(found, "twins"), "warning", "2 podgpu run: processes 1, 4711", "remove one of them")


async def test_dcgm_exporter_beside_podgpu_is_a_warning_unless_its_page_is_read(
    tmp_path: Path,
) -> None:
    ctx = context(tmp_path / "a")
    process(ctx.roots.proc, 9, "/usr/bin/dcgm-exporter", "-f", "a.csv")
    is_bad((await twins.examine(ctx))[0], "warning", "dcgm-exporter runs", "remove one of them")
    reads = "sources: {d: {kind: dcgm, url: 'http://localhost:9401/metrics'}}\n"
    beside = context(tmp_path / "b", reads, roots=ctx.roots)
    assert (await twins.examine(beside))[0].verdict is Verdict.OK


# -- queue.folder --------------------------------------------------------------------------------

MIB = ByteSize.parse("1MiB")


def test_a_folder_that_takes_data_is_well_and_left_as_it_was(tmp_path: Path) -> None:
    roots = healthy(tmp_path / "node")
    folder = tmp_path / "queue"
    folder.mkdir()
    told = of(queues.look(folder, MIB, roots.proc), "queue.folder")
    assert told.verdict is Verdict.OK
    assert "ext4" in told.saw
    assert list(folder.iterdir()) == []
    later = of(queues.look(tmp_path / "new/deep", MIB, roots.proc), "queue.folder")
    assert later.verdict is Verdict.OK
    assert f"to be made in {tmp_path}" in later.looked_at
    assert not (tmp_path / "new").exists()


def test_a_queue_on_tmpfs_is_a_warning(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    write(
        proc / "self/mountinfo",
        "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"30 22 0:31 / {tmp_path} rw,nosuid shared:5 master:2 - tmpfs tmpfs rw\n",
    )
    found = queues.look(tmp_path, MIB, proc)
    is_bad(of(found, "queue.folder"), "warning", "tmpfs", "node's disk (hostPath)")


def test_a_folder_that_takes_nothing_is_a_failure(tmp_path: Path) -> None:
    # procfs takes no file, not even from root.
    found = queues.look(Path("/proc/self/queue"), MIB, tmp_path)
    is_bad(of(found, "queue.folder"), "failure", "nothing can be written there", "writ")
    path = write(tmp_path / "file")
    is_bad(queues.look(path / "queue", MIB, tmp_path)[0], "failure", "no folder", "hostPath")


def test_a_disk_with_too_little_room_is_a_warning(tmp_path: Path) -> None:
    found = queues.look(tmp_path, ByteSize.parse("1000000TiB"), healthy(tmp_path / "n").proc)
    is_bad(of(found, "queue.folder"), "warning", "MiB are free", "lower queue.max_size")


@pytest.mark.parametrize("kind", ["overlay", "aufs", "fuse.fuse-overlayfs"])
def test_a_queue_on_the_container_s_own_layer_is_a_warning(tmp_path: Path, kind: str) -> None:
    write(tmp_path / "proc/self/mountinfo", f"22 1 0:31 / / rw - {kind} {kind} rw\n")
    found = queues.look(tmp_path / "queue", MIB, tmp_path / "proc")
    is_bad(of(found, "queue.folder"), "warning", "the container's own layer", "(hostPath)")


OWNERS = [
    ("ours", "ok"),
    ("another container's", "failure"),
    ("nobody's who can be seen", "failure"),
]


@pytest.mark.parametrize(("whose", "verdict"), OWNERS)
def test_a_queue_that_is_in_use(tmp_path: Path, whose: str, verdict: str) -> None:
    proc, folder = healthy(tmp_path / "node").proc, tmp_path / "queue"
    queue = Folder(folder, flushes=False)
    if whose != "nobody's who can be seen":
        process(proc, 7, *PODGPU)
        root = tmp_path if whose == "another container's" else None
        (in_this_container(proc, 7, root) / "9").symlink_to(folder / "lock")
    told = of(queues.look(folder, MIB, proc), "queue.folder")
    queue.close()
    assert told.verdict.value == verdict, told
    if verdict == "failure":
        saw = f"in use by another podgpu, process {os.getpid()} in its own container"
        is_bad(told, verdict, saw, "each podgpu needs a folder of its own")
    # Free again, and the look has not taken the lock for itself.
    assert of(queues.look(folder, MIB, proc), "queue.folder").verdict is Verdict.OK
    Folder(folder, flushes=False).close()


def test_what_the_queue_has_already_counts_as_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc, folder = healthy(tmp_path / "node").proc, tmp_path / "queue"
    write(folder / "00000000000000000001.seg", "x" * (3 << 20))
    monkeypatch.setattr(queues.os, "statvfs", lambda _: Space())  # type: ignore[attr-defined]
    (told,) = queues.look(folder, ByteSize.parse("4MiB"), proc)
    assert told.verdict is Verdict.OK, told
    (told,) = queues.look(folder, ByteSize.parse("6MiB"), proc)
    is_bad(told, "warning", "2 MiB are free, 3 MiB are the queue's", "make room")


class Space:
    """A disk with two MiB left."""

    f_bavail, f_frsize = 2, 1 << 20


async def test_every_sink_with_a_queue_is_looked_at(tmp_path: Path) -> None:
    text = (
        f"sinks: {{a: {{kind: otlp, queue: {{path: {tmp_path}/q}}}}, b: {{kind: otlp}},"
        " c: {kind: jsonl}}\n"
    )
    ctx = context(tmp_path, text)
    made = queues.examinations(ctx.config, ctx)
    assert [each.name for each in made] == ["sink a", "sink b"]
    found = [finding for each in made for finding in await each.work()]
    assert [finding.verdict for finding in found] == [Verdict.OK, Verdict.SKIPPED]


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
23 22 0:21 / /dev/shm rw - tmpfs shm rw
24 22 0:22 / /a\\040b rw shared:3 - xfs /dev/sdb rw
25 24 0:23 / /a\\040b rw - tmpfs none rw
nonsense
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/etc", "ext4"), ("/dev/shm/q", "tmpfs"), ("/dev/shmem", "ext4"), ("/a b/c", "tmpfs")],
)
def test_a_file_system_is_that_of_the_nearest_mount(tmp_path: Path, path: str, kind: str) -> None:
    write(tmp_path / "self/mountinfo", MOUNTS)
    assert file_system(Path(path), tmp_path) == kind
    assert not is_mounted(Path(path), tmp_path)
    assert is_mounted(Path("/dev/shm"), tmp_path)


def test_without_a_list_of_mounts_the_kind_is_not_known(tmp_path: Path) -> None:
    assert file_system(tmp_path, tmp_path) == ""
