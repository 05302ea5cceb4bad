"""`docs/security.md` names every kind, command and right, and what it says of them is so."""

import argparse
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from config.option_docs import describe
from pipeline.component.registry import ENTRIES, RegisteredKinds
from tests.deploy.manifests import Manifests, documented, ordered
from tests.deploy.places import DOCS, PLAIN, ROOT
from tests.e2e.documented import objects

PAGE = (DOCS / "security.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading, without its head."""
    part = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


def kinds(role: str) -> dict[str, list[str]]:
    """Return the rows of a role's kinds, whose first cell leads to the page of the kind."""
    found = {}
    for first, *cells in table(f"{role.capitalize()}s"):
        match = re.fullmatch(rf"\[(\w+)\]\({role}s/(\w+)\.md\)", first)
        assert match, first
        assert match[1] == match[2]
        found[match[1]] = cells
    return found


ROWS = {(role, kind): cells for role in ("source", "sink") for kind, cells in kinds(role).items()}
WHAT, _USER, API, NETWORK, TAKEN_OVER, TAKEN_AWAY = range(6)


def test_each_kind_has_a_row_and_nothing_else_has() -> None:
    assert sorted(ROWS) == sorted(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=":".join)
def test_a_row_is_full(entry: tuple[str, str]) -> None:
    cells = ROWS[entry]
    assert len(cells) == 6
    assert all(cells)


@pytest.mark.parametrize("entry", ENTRIES, ids=":".join)
def test_who_can_have_a_kubeconfig_asks_the_api_server(entry: tuple[str, str]) -> None:
    names = {option.name for option in describe(RegisteredKinds().options(*entry))}
    assert (ROWS[entry][API] != "none") is ("kubeconfig" in names)
    assert ("API server" in ROWS[entry][NETWORK]) is ("kubeconfig" in names)
    assert ("in: " in ROWS[entry][NETWORK]) is ("listen" in names)


def places(options: type[msgspec.Struct]) -> set[str]:
    """Return the folders of the host that are there by default."""
    found = set()
    for field in msgspec.structs.fields(options):
        values = field.default if isinstance(field.default, tuple) else (field.default,)
        found |= {
            str(value if value.is_dir() else value.parent)
            for value in values
            if isinstance(value, Path)
        }
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=":".join)
def test_a_folder_of_the_host_is_named(entry: tuple[str, str]) -> None:
    for place in places(RegisteredKinds().options(*entry)):
        assert f"`{place}`" in ROWS[entry][WHAT], place


def commands() -> list[str]:
    # Here, since the name `main` in the package is a function to those who import it so.
    from podgpu.cli.commands import _parser

    (found,) = (
        action.choices
        for action in _parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return list(found)


def test_each_command_has_a_row() -> None:
    given_out = [first.strip("`").removeprefix("podgpu ") for first, _ in table("Commands")]
    assert sorted(given_out) == sorted(commands())


def rule(group: str, resources: str, verbs: str, names: str = "") -> dict[str, Any]:
    made: dict[str, Any] = {"apiGroups": [group], "resources": [resources]}
    return {**made, "verbs": verbs.split(", "), **({"resourceNames": names} if names else {})}


RIGHTS = table("Rights of the API server")
OF_PAGES = {
    "source `pods`": "sources/pods.md",
    "sink `node`": "sinks/node.md",
    "sink `pods`": "sinks/pods.md",
    "sink `events`": "sinks/events.md",
}


@pytest.mark.parametrize("who", OF_PAGES)
def test_rights_are_those_of_the_page(who: str) -> None:
    given_out = [rule(*cells[:3]) for first, *cells in RIGHTS if first.startswith(who)]
    assert ordered(given_out) == documented(DOCS / OF_PAGES[who])


def test_the_right_on_the_list_of_metrics_is_that_of_the_page() -> None:
    (shown,) = documented(DOCS / "configuration.md")
    (cells,) = [cells for first, *cells in RIGHTS if first == "`counters.configmap`"]
    assert shown.pop("resourceNames"), "one alone"
    assert cells[3]
    assert ordered([rule(*cells[:3])]) == [shown]


def test_the_extender_s_rights_are_those_of_its_page() -> None:
    (role,) = objects("extender.md", "ClusterRole")
    (cells,) = [cells for first, *cells in RIGHTS if first == "`podgpu extender`"]
    assert ordered([rule(*cells[:3])]) == ordered(role["rules"])


def test_each_right_has_its_owner_here() -> None:
    """A row of somebody whom no other test looks at would be of no use."""
    owners = {*OF_PAGES, "`counters.configmap`", "`podgpu extender`"}
    for first, *_ in RIGHTS:
        assert any(first.startswith(owner) for owner in owners), first


def test_what_the_chart_does_is_so() -> None:
    made = Manifests(PLAIN.read_text(encoding="utf-8"))
    context = made.container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "privileged" not in context
    assert context["runAsUser"] == 0, "the preset asks the kubelet"
    assert all(read_only for _, read_only in made.mounts.values())
    assert [port["containerPort"] for port in made.container["ports"]] == [9400]
    assert made.env["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert made.env["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    of_the_preset = [rule(*cells[:3]) for first, *cells in RIGHTS if first.startswith("source")]
    assert made.rules == ordered(of_the_preset)
    assert "hostPID" not in made.pod
    assert "hostNetwork" not in made.pod


SECRET = re.compile(r"(token|password|key)_file$|kubeconfig$|headers$")


def test_each_option_that_leads_to_a_secret_is_reported() -> None:
    given_out = " ".join(cells[0] for cells in table("Secrets"))
    for role, kind in ENTRIES:
        for option in describe(RegisteredKinds().options(role, kind)):
            if SECRET.search(option.name):
                assert f"`{option.name}`" in given_out, (role, kind, option.name)


def test_the_image_is_installed_with_hashes() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    parts = re.split(r"\n| && ", text.replace("\\\n", " "))
    installs = [part for part in parts if " -m pip " in part]
    assert installs
    for each in installs:
        hashed = "--require-hashes" in each and "--only-binary=:all:" in each
        # podgpu's own wheel has none: it is made there.
        assert hashed or "--no-index --no-deps /dist/" in " ".join(each.split()), each
    for name in ("requirements.txt", "image/build-requirements.txt"):
        lines = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
        pinned = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        assert pinned
        assert [line for line in pinned if "==" not in line or "--hash=sha256:" not in line] == []
