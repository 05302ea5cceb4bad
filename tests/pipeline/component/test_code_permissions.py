"""Code that a configuration refers to runs only if the command line allows it (R13)."""

import ast
import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from config.errors import ConfigError
from config.option_docs import describe
from config.option_markers import LeadsTo
from config.schema import Counters, Http, Log
from config.type_shapes import Items, Maybe, Record, Scalar, Shape, Table, record
from pipeline.base.errors import CodeRefusedError, PermanentError
from pipeline.component import code_permissions
from pipeline.component.code_permissions import NOTHING, Allowed, libraries, plugins, refused
from pipeline.component.registry import KINDS, RegisteredKinds
from pipeline.kube.credentials import KubeconfigFile
from pipeline.kube.sessions import Sessions
from pipeline.runtime.runtime import Runtime
from tests.pipeline.component.configured_code import (
    ENGINE,
    USES,
    Program,
    Trap,
    config,
    program,
    text,
    textfile,
    trap,
    with_library,
)
from tests.pipeline.kube.conftest import kubeconfig

__all__ = ["program", "trap"]

ALL = Allowed(everything=True)
V1 = "client.authentication.k8s.io/v1"
SECRET = "hunter2"  # noqa: S105 - of the tests


# Options that lead to code.


@pytest.mark.parametrize("place", USES)
@pytest.mark.parametrize("how", ["exec", "gcp"])
def test_r13_a_kubeconfig_with_a_program_is_refused_where_it_is_named(
    program: Program, tmp_path: Path, place: str, how: str
) -> None:
    path = kubeconfig(tmp_path / "config", "http://x", getattr(program, how)())
    made = config(USES[place](path))
    (problem,) = refused(made, NOTHING)
    assert problem.path == place
    message = problem.render("podgpu.yaml")
    assert f"{path}:1: " in message
    assert "--allow-configured-code" in message
    assert refused(made, Allowed(libraries=frozenset({program.path}))) != []
    assert refused(made, ALL) == []
    assert not program.has_run


def test_r13_a_library_is_refused_unless_it_or_everything_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "libdcgm.so.4"
    made = config(with_library(path))
    (problem,) = refused(made, NOTHING)
    assert problem.path == ENGINE
    assert f"--allow-library {path}" in problem.hint
    assert refused(made, Allowed(libraries=frozenset({tmp_path / "another.so"})))
    assert refused(made, Allowed(libraries=frozenset({path}))) == []
    assert refused(made, ALL) == []
    assert refused(config(text(sources=", h: {kind: hostengine}")), NOTHING) == []


HARMLESS: dict[str, dict[str, object]] = {
    "a token": {"token": "t"},
    "a file with a token": {"tokenFile": "/token"},
    "certificates": {"client-certificate-data": "x", "client-key-data": "x"},
    "oidc": {"auth-provider": {"name": "oidc", "config": {"id-token": "x"}}},
}


@pytest.mark.parametrize("user", HARMLESS)
def test_r13_a_kubeconfig_without_a_program_is_accepted(tmp_path: Path, user: str) -> None:
    path = kubeconfig(tmp_path / "config", "http://x", HARMLESS[user])
    assert refused(config(USES["sources.p.kubeconfig"](path)), NOTHING) == []


@pytest.mark.parametrize(
    "content", ["", "nonsense: [", "[]", "users: x", "current-context: a", "\0", "a: b\n---\nc: d"]
)
def test_r13_an_invalid_kubeconfig_is_reported_only_by_its_reader(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    for each in (path, tmp_path / "none", tmp_path):
        assert plugins(config(USES["sources.p.kubeconfig"](each)), NOTHING) == []


def test_r13_a_program_of_another_user_in_the_kubeconfig_is_no_problem(
    program: Program, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    made = json.loads(kubeconfig(path, "http://x", {"token": "t"}).read_text())
    made["users"].append({"name": "other", "user": program.exec()})
    path.write_text(json.dumps(made))
    assert plugins(config(USES["sources.p.kubeconfig"](path)), NOTHING) == []
    KubeconfigFile(path).load(reload=False)
    assert not program.has_run


def test_r13_no_secret_of_the_kubeconfig_is_reported(program: Program, tmp_path: Path) -> None:
    user = program.exec(args=[SECRET], env=[{"name": "A", "value": SECRET}])
    user["exec"]["command"] = f"{program.path} {SECRET}"  # type: ignore[index]
    path = kubeconfig(tmp_path / "config", "http://x", user)
    (problem,) = plugins(config(USES["sources.p.kubeconfig"](path)), NOTHING)
    assert SECRET not in problem.render("x")
    with pytest.raises(CodeRefusedError) as caught:
        KubeconfigFile(path).load(reload=False)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def shapes(shape: Shape) -> Iterator[Shape]:
    yield shape
    if isinstance(shape, Maybe | Items | Table):
        yield from shapes(shape.inner)
    if isinstance(shape, Record):
        for field in shape.fields:
            yield from shapes(field.shape)


CLASSES = [
    *(RegisteredKinds().options(role, kind) for role, kind in KINDS),
    *(Counters, Http, Log),
]


@pytest.mark.parametrize("options", CLASSES, ids=lambda each: each.__module__ + each.__name__)
def test_r13_every_option_that_may_lead_to_code_has_the_marker(
    options: type[msgspec.Struct],
) -> None:
    """An option with such a name has the marker, and the search for markers finds it."""
    suspect = re.compile(r"kubeconfig|library|plugin|command|script|exec|program|hook")
    marked = [
        each
        for field in record(options).fields
        for each in shapes(field.shape)
        if isinstance(each, Scalar) and each.leads_to
    ]
    names = [
        each.name for each in describe(options) if suspect.search(each.name.rpartition(".")[2])
    ]
    assert len(names) == len(marked), names
    # The search does not find markers within a list or a mapping of names.
    for field in record(options).fields:
        if isinstance(field.shape, Items | Table):
            assert not any(isinstance(e, Scalar) and e.leads_to for e in shapes(field.shape))


def test_r13_the_marker_has_two_kinds() -> None:
    assert {LeadsTo("library").kind, LeadsTo("kubeconfig").kind} == {"library", "kubeconfig"}


# Code that runs what an option names.


@pytest.mark.parametrize("how", ["exec", "gcp"])
async def test_r13_a_session_runs_a_program_only_if_it_is_allowed(
    program: Program, tmp_path: Path, how: str
) -> None:
    """This check is independent of earlier ones: the file may have changed since then."""
    path = kubeconfig(tmp_path / "config", "http://x", getattr(program, how)())
    with pytest.raises(CodeRefusedError, match=r"does not run.*--allow-configured-code"):
        async with Sessions().session(path):
            pass
    assert not program.has_run
    async with Sessions(plugins=True).session(path):
        pass
    assert program.has_run


def test_r13_a_token_next_to_the_program_does_not_avoid_the_refusal(
    program: Program, tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path / "config", "http://x", {"token": "t", **program.exec()})
    known = KubeconfigFile(path)
    for again in (False, False, True):
        with pytest.raises(CodeRefusedError):
            known.load(reload=again)
    kubeconfig(path, "http://x", {"token": "t"})
    assert known.load(reload=False).authorization == "Bearer t"
    assert not program.has_run


async def test_r13_a_start_with_code_is_refused(
    program: Program, trap: Trap, tmp_path: Path
) -> None:
    path = kubeconfig(tmp_path / "config", "http://x", program.exec())
    both = msgspec.structs.replace(
        config(USES["sources.p.kubeconfig"](path)),
        sources={
            **config(USES["sources.p.kubeconfig"](path)).sources,
            **config(with_library(trap.path)).sources,
        },
        sinks={},
    )
    with pytest.raises(PermanentError) as caught:
        await Runtime(both).run(asyncio.Event())
    message = str(caught.value)
    assert "sources.p.kubeconfig: " in message
    assert f"{ENGINE}: " in message
    assert not program.has_run
    assert not trap.was_loaded


@pytest.mark.slow
async def test_r13_a_reload_with_code_is_refused_and_the_configuration_stays(
    program: Program, trap: Trap, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = kubeconfig(tmp_path / "config", "http://x", program.exec())
    first = config(f"sources: {{r: {{kind: replay, path: 'builtin:demo'}}}}\n{textfile(tmp_path)}")
    stop, runtime = asyncio.Event(), Runtime(first)
    task = asyncio.create_task(runtime.run(stop))
    try:
        for document in (with_library(trap.path), USES["sources.p.kubeconfig"](path)):
            changed = msgspec.structs.replace(config(document), sinks=first.sinks)
            assert not await runtime.reload(changed)
            assert runtime.config is first
    finally:
        stop.set()
        await task
    refusals = [each for each in caplog.messages if "configuration not reloaded" in each]
    assert len(refusals) == 2
    assert ENGINE in refusals[0]
    assert "sources.p.kubeconfig" in refusals[1]
    assert not program.has_run
    assert not trap.was_loaded


async def test_r13_a_kubeconfig_that_hangs_does_not_delay_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session of the kubeconfig checks it again and refuses it then."""
    held = asyncio.Event()

    async def to_thread(*_: object) -> None:
        await held.wait()

    monkeypatch.setattr("pipeline.runtime.runtime.asyncio.to_thread", to_thread)
    monkeypatch.setattr("pipeline.runtime.runtime._FILES", 0.05)
    made = config(USES["sources.p.kubeconfig"](tmp_path / "config"))
    await Runtime(made)._check_code_allowed(made)


def test_r13_the_configuration_file_cannot_allow_code() -> None:
    for name in ("allow_configured_code", "allow-configured-code", "allowConfiguredCode"):
        with pytest.raises(ConfigError):
            config(text(more=f"{name}: true\n"))
    assert Allowed() == NOTHING
    assert libraries(config(text()), NOTHING) == []


RUNS = {
    "pipeline/diagnostics/context.py": "the C library, which is always loaded",
    "pipeline/diagnostics/library_load.py": "hostengine's library if it is allowed, NVML's by name",
    "pipeline/host/memory_footprint.py": "the C library, which is always loaded",
    "pipeline/kube/client_library.py": "modules of a podgpu package",
    "pipeline/kube/credentials.py": "programs of kubeconfigs, if they are allowed",
    "pipeline/component/registry.py": "podgpu's modules, listed in a table",
    "podgpu/cli/archive/command.py": "podgpu's own module, in this Python",
    "podgpu/cli/archive/resident.py": "the same; its arguments come from that module",
    "podgpu/cli/demo/ledger_place.py": "podgpu's own module, in this Python; no option leads there",
    "sources/slurm/slurm_commands.py": "scontrol and squeue, by their names in the PATH; no option",
    "sources/hostengine/library.py": "DCGM's library: the path only if it is allowed",
    "sources/nvml/diagnosis/library_checks.py": "NVML by its name",
}
CALLS = re.compile(
    r"subprocess|CDLL|PyDLL|cdll|dlopen|Popen|subprocess_exec|subprocess_shell|create_subprocess_\w+|system"
    r"|import_module|module_from_spec|exec|exec[lv]\w*|posix_spawn\w*|eval|load_extension"
)


def calls_of(path: Path) -> set[str]:
    """Return the names that a module calls and imports, if any of them may run code."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text if CALLS.search(text) else "")
    made = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {
        *(each.attr for each in made if isinstance(each, ast.Attribute)),
        *(each.id for each in made if isinstance(each, ast.Name)),
        *(name.name for each in tree.body if isinstance(each, ast.Import) for name in each.names),
    }


@pytest.mark.slow
def test_r13_code_is_loaded_or_run_only_in_known_modules() -> None:
    """If you add a module, check which options lead there: see the marker `LeadsTo`."""
    root = Path(code_permissions.__file__).parents[2]
    found = {
        str(path.relative_to(root))
        for folder in ("config", "pipeline", "podgpu", "sources", "sinks")
        for path in (root / folder).rglob("*.py")
        if any(map(CALLS.fullmatch, calls_of(path)))
    }
    assert found == set(RUNS)
