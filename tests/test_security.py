"""`docs/security.md` names every kind, command and permission, and is correct."""

import argparse
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.option_docs import describe
from pipeline.component.kind import Role
from pipeline.component.registry import KINDS, RegisteredKinds
from tests.deploy.manifests import Manifests, documented, ordered
from tests.deploy.places import DOCS, PLAIN, ROOT
from tests.e2e.documented import objects

PAGE = DOCS / "security.md"


def table(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading, without its head row."""
    page = PAGE.read_text(encoding="utf-8")
    part = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def kinds(role: str) -> dict[str, list[str]]:
    """Return the rows of a role's kinds; the first cell of each links to the page of the kind."""
    found = {}
    for first, *cells in table(f"{role.capitalize()}s"):
        match = re.fullmatch(rf"\[(\w+)\]\({role}s/(\w+)\.md\)", first)
        assert match, first
        assert match[1] == match[2]
        found[match[1]] = cells
    return found


FIRST = {"source": "what it reads, and how", "sink": "what it writes, and where"}
OTHERS = "user | API server | network | if compromised | how to remove it"


def access(role: str, kind: str) -> list[str]:
    """Return the row of a kind's own page, with links as they are in `docs/`."""
    path = DOCS / f"{role}s" / f"{kind}.md"
    _, found, section = path.read_text(encoding="utf-8").partition("\n## Access\n")
    assert found, f"{path} has no section '## Access'"
    sentence = f"This row is repeated in [security](../security.md#{role}s)."
    assert sentence in section.splitlines(), f"{path}: the section Access lacks: {sentence}"
    rows = [line for line in section.splitlines() if line.startswith("|")]
    head = [f"| {FIRST[role]} | {OTHERS} |", "|---|---|---|---|---|---|"]
    assert rows[:2] == head, f"{path}: the table of Access must begin with:\n" + "\n".join(head)
    assert len(rows) == 3, f"{path}: the table of Access must have exactly one row"
    row = rows[2]

    def link(found: re.Match[str]) -> str:
        target = found[1]
        if "://" in target:
            return found[0]
        if not target.startswith("../"):
            return f"]({role}s/{target})"
        return f"]({target.removeprefix('../').replace('security.md#', '#')})"

    return [cell.strip() for cell in re.sub(r"\]\(([^)]+)\)", link, row).strip("|").split("|")]


WHAT, _USER, API, NETWORK, TAKEN_OVER, TAKEN_AWAY = range(6)


def rows() -> dict[tuple[str, str], list[str]]:
    """Return the row of each kind, as the page has it now."""
    return {(role, kind): row for role in ("source", "sink") for kind, row in kinds(role).items()}


def with_rows_of_the_pages(page: str, role: Role) -> str:
    """Return the page with the table of a role that the pages of its kinds result in."""
    text = "".join(
        f"| [{kind}]({role}s/{kind}.md) | {' | '.join(access(role, kind))} |\n"
        for of, kind in KINDS
        if of == role
    )
    part = re.compile(rf"(\n## {role.capitalize()}s\n.*?\n\|---[^\n]*\n)((?:\|[^\n]*\n)+)", re.S)
    assert part.search(page)
    return part.sub(lambda one: one[1] + text, page)


def test_the_tables_are_those_of_the_pages() -> None:
    """`PODGPU_WRITE_GOLDEN=1` writes them, in the order of the registry."""
    page = PAGE.read_text(encoding="utf-8")
    expected = with_rows_of_the_pages(with_rows_of_the_pages(page, "source"), "sink")
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        PAGE.write_text(expected, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == expected


def test_there_is_one_row_for_each_kind() -> None:
    assert sorted(rows()) == sorted(KINDS)


@pytest.mark.parametrize("entry", KINDS, ids=":".join)
def test_all_cells_of_a_row_are_filled(entry: tuple[str, str]) -> None:
    cells = rows()[entry]
    assert len(cells) == 6
    assert all(cells)


@pytest.mark.parametrize("entry", KINDS, ids=":".join)
def test_a_kind_with_a_kubeconfig_is_documented_to_use_the_api_server(
    entry: tuple[str, str],
) -> None:
    names = {option.name for option in describe(RegisteredKinds().options(*entry))}
    cells = rows()[entry]
    assert (cells[API] != "none") is ("kubeconfig" in names)
    assert ("API server" in cells[NETWORK]) is ("kubeconfig" in names)
    assert ("in: " in cells[NETWORK]) is ("listen" in names)


def paths(options: type[msgspec.Struct]) -> list[Path]:
    """Return the paths of the host that options name by default."""
    found: list[object] = []
    for field in msgspec.structs.fields(options):
        found += field.default if isinstance(field.default, tuple) else (field.default,)
    return [value for value in found if isinstance(value, Path)]


@pytest.mark.parametrize("entry", KINDS, ids=":".join)
def test_folders_of_the_host_are_documented(entry: tuple[str, str]) -> None:
    """The row names a default path if it is a folder, else the folder that it is in."""
    what = rows()[entry][WHAT]
    for path in paths(RegisteredKinds().options(*entry)):
        assert f"`{path}`" in what or f"`{path.parent}`" in what, path


def commands() -> list[str]:
    # Imported here, because another import can replace the name `main` in the package.
    from podgpu.cli.commands import command_parser

    (found,) = (
        action.choices
        for action in command_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return list(found)


def test_each_command_has_a_row() -> None:
    names = [first.strip("`").removeprefix("podgpu ") for first, _ in table("Commands")]
    assert sorted(names) == sorted(commands())


def rule(group: str, resources: str, verbs: str, names: str = "") -> dict[str, Any]:
    rendered: dict[str, Any] = {"apiGroups": [group], "resources": [resources]}
    return {**rendered, "verbs": verbs.split(", "), **({"resourceNames": names} if names else {})}


RIGHTS = table("Rights of the API server")
OF_PAGES = {
    "source `pods`": "sources/pods.md",
    "sink `node`": "sinks/node.md",
    "sink `pods`": "sinks/pods.md",
    "sink `events`": "sinks/events.md",
}


@pytest.mark.parametrize("owner", OF_PAGES)
def test_permissions_equal_those_of_the_page(owner: str) -> None:
    documented_rules = [rule(*cells[:3]) for first, *cells in RIGHTS if first.startswith(owner)]
    assert ordered(documented_rules) == documented(DOCS / OF_PAGES[owner])


def test_the_permission_for_the_counters_config_map_equals_that_of_the_page() -> None:
    (shown,) = documented(DOCS / "configuration.md")
    (cells,) = [cells for first, *cells in RIGHTS if first == "`counters.configmap`"]
    assert shown.pop("resourceNames"), "limited to one name"
    assert cells[3]
    assert ordered([rule(*cells[:3])]) == [shown]


def test_the_permissions_of_the_extender_equal_those_of_its_page() -> None:
    (role,) = objects("extender.md", "ClusterRole")
    (cells,) = [cells for first, *cells in RIGHTS if first == "`podgpu extender`"]
    assert ordered([rule(*cells[:3])]) == ordered(role["rules"])


def test_each_permission_has_an_owner_that_is_tested() -> None:
    """A row without an owner would not be checked by any other test."""
    owners = {*OF_PAGES, "`counters.configmap`", "`podgpu extender`"}
    for first, *_ in RIGHTS:
        assert any(first.startswith(owner) for owner in owners), first


def test_the_chart_has_the_documented_security_settings() -> None:
    rendered = Manifests(PLAIN.read_text(encoding="utf-8"))
    context = rendered.container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "privileged" not in context
    assert context["runAsUser"] == 0, "the preset reads the kubelet's socket"
    assert all(read_only for _, read_only in rendered.mounts.values())
    assert [port["containerPort"] for port in rendered.container["ports"]] == [9400]
    assert rendered.env["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert rendered.env["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    preset_rules = [rule(*cells[:3]) for first, *cells in RIGHTS if first.startswith("source")]
    assert rendered.rules == ordered(preset_rules)
    assert "hostPID" not in rendered.pod
    assert "hostNetwork" not in rendered.pod


SECRET = re.compile(r"(token|password|key)_file$|kubeconfig$|headers$")


def test_each_option_that_names_a_secret_is_documented() -> None:
    documented_options = " ".join(cells[0] for cells in table("Secrets"))
    for role, kind in KINDS:
        for option in describe(RegisteredKinds().options(role, kind)):
            if SECRET.search(option.name):
                assert f"`{option.name}`" in documented_options, (role, kind, option.name)


def test_the_image_installs_packages_by_hash() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    parts = re.split(r"\n| && ", text.replace("\\\n", " "))
    installs = [part for part in parts if " -m pip " in part]
    assert installs
    for each in installs:
        hashed = "--require-hashes" in each and "--only-binary=:all:" in each
        # podgpu's own wheel has no hash, because the image builds it.
        assert hashed or "--no-index --no-deps /dist/" in " ".join(each.split()), each
    for name in ("requirements.txt", "image/build-requirements.txt"):
        lines = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        pinned = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        assert pinned
        assert [line for line in pinned if "==" not in line or "--hash=sha256:" not in line] == []
