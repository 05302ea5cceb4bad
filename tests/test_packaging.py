"""No other distribution uses podgpu's package names, imports load little, and modules are short."""

import importlib
import re
import subprocess
import sys
import tomllib
import zipfile
from contextlib import nullcontext
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from pipeline.component.registry import KINDS, load
from tests.support import first_imports

ROOT = Path(__file__).parent.parent
PACKAGES = ("config", "pipeline", "podgpu", "sources", "sinks")
MODULES = sorted(
    str(path.relative_to(ROOT).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__main__.py"
)


def test_no_other_distribution_has_a_package_of_the_same_name() -> None:
    distributions = packages_distributions()
    others = {package: set(distributions.get(package, [])) - {"podgpu"} for package in PACKAGES}
    assert others == {package: set() for package in PACKAGES}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_imported_package_is_that_of_this_repository(package: str) -> None:
    found = importlib.import_module(package).__file__
    assert found is not None
    assert Path(found).is_relative_to(ROOT)


def python(*arguments: str) -> str:
    """Run a new interpreter with warnings as errors; return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_every_module_can_be_imported_first() -> None:
    """No module depends on an import of another module before it."""
    python("-m", "tests.support.first_imports", *MODULES)


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("sound", "from first_sound import a", ""),
        ("unnamed", "import first_unnamed\nfirst_unnamed.a.X", "has no attribute 'a'"),
        ("cyclic", "from first_cyclic.c import Y", "cannot import name 'Y'"),
    ],
)
def test_a_module_that_needs_another_one_first_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: str, message: str
) -> None:
    package = f"first_{name}"
    modules = {
        "__init__": "",
        "a": "X = 1",
        "b": code,
        "c": f"import {package}.a, {package}.b\nY = {package}.a.X",
    }
    (tmp_path / package).mkdir()
    for module, text in modules.items():
        (tmp_path / package / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((AttributeError, ImportError)) if message else nullcontext() as found:
        first_imports.main([package, *(f"{package}.{module}" for module in "abc")])
    assert message in str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        (
            "pipeline.component.registry",
            ["aiohttp", "pynvml", "yaml", "sources", "sinks", "asyncinotify"],
        ),
        ("podgpu.cli", ["aiohttp", "pynvml", "sources", "sinks", "asyncinotify"]),
        ("pipeline.runtime.runtime", ["aiohttp", "pynvml", "sources", "sinks"]),
        ("pipeline.model", ["asyncio", "msgspec", "orjson", "yaml"]),
    ],
)
def test_a_module_does_not_load_optional_libraries(module: str, heavy: list[str]) -> None:
    """The registry loads the declarations of all kinds, but nothing else of them."""
    loaded = python("-c", f"import sys, {module}; print(*sys.modules)").split()
    declarations = re.compile(r"(sources|sinks)(\.\w+(\.kind)?)?")
    others = [name for name in loaded if not declarations.fullmatch(name)]
    assert [name for name in others if name.split(".")[0] in heavy] == []


def test_options_load_no_large_library() -> None:
    modules = {kind.options.partition(":")[0] for kind in KINDS.values()}
    loaded = python("-c", f"import sys, {', '.join(modules)}; print(*sys.modules)").split()
    heavy = {"aiohttp", "pynvml", "asyncinotify", "aiofiles", "grpc", "kubernetes_asyncio"}
    heavy |= {"google", "opentelemetry"}
    assert [name for name in loaded if name.split(".")[0] in heavy] == []


@pytest.mark.parametrize("entry", KINDS, ids=":".join)
def test_every_registered_path_can_be_loaded(entry: tuple[str, str]) -> None:
    assert load(KINDS[entry].options) is not None  # type: ignore[index]
    assert load(KINDS[entry].factory) is not None  # type: ignore[index]


def test_modules_have_at_most_400_lines() -> None:
    sizes = sorted(
        (len(path.read_text(encoding="utf-8").splitlines()), str(path.relative_to(ROOT)))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    )
    assert sizes[-1][0] <= 400, sizes[-1]
    assert sizes[len(sizes) // 2][0] <= 150


def test_modules_of_tests_have_at_most_400_lines() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "tests").rglob("*.py")
    }
    assert {path: lines for path, lines in sizes.items() if lines > 400} == {}


def test_the_sdist_selects_only_paths_from_the_root() -> None:
    """A pattern without a slash also selects folders below `tests` with that name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {f"/{package}" for package in PACKAGES} <= set(included)
    assert [each for each in included if not each.startswith("/")] == []


@pytest.mark.slow
def test_the_wheel_contains_all_files_of_the_packages_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {name.split("/")[0] for name in names} - set(PACKAGES) == {
        next(name.split("/")[0] for name in names if ".dist-info/" in name)
    }
    expected = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert names >= expected
    assert "sources/replay/demo.podgpu.gz" in expected
    assert "config/demo.yaml" in expected
    assert "sources/podresources/podresources.binpb" in expected
    assert "sources/checkpoint/deviceplugin.binpb" in expected
