"""The steps of a release, without the programs that they run, and the workflows."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.release import artefacts, publishing
from deploy.release.__main__ import STEPS, main
from deploy.release.provenance import predicate
from deploy.release.settings import ReleaseError, Settings
from tests.deploy.places import DOCS, ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
RELEASE = (ROOT / ".github" / "workflows" / "release.yaml").read_text(encoding="utf-8")
PEERS = ROOT / "tests" / "e2e" / "peers"

_STEP = re.compile(r"\brelease-([a-z]+)\b")
_USES = re.compile(r"^ *- uses: (.*)$|^ *uses: (.*)$", re.MULTILINE)
_PINNED = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")


def settings(tmp_path: Path, **env: str) -> Settings:
    return Settings.read({"DIST": str(tmp_path), **env})


def test_the_tag_of_the_version_is_accepted(tmp_path: Path) -> None:
    made = settings(tmp_path)
    artefacts.check(settings(tmp_path, TAG=f"v{made.version}"))


@pytest.mark.parametrize("tag", ["v9.9.9", "{}", "release-{}", "v{}-rc1"])
def test_another_tag_is_refused_with_the_expected_one(tmp_path: Path, tag: str) -> None:
    version = settings(tmp_path).version
    with pytest.raises(ReleaseError, match=rf"must be v{re.escape(version)}"):
        artefacts.check(settings(tmp_path, TAG=tag.format(version)))


def test_a_place_with_another_version_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = settings(tmp_path).version
    for name in ("deploy/chart/Chart.yaml", "Dockerfile"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(
            text.replace(f'appVersion: "{version}"', 'appVersion: "0.0.9"')
        )
    monkeypatch.setattr(artefacts, "ROOT", tmp_path)
    with pytest.raises(ReleaseError, match=r"Chart\.yaml, appVersion has 0\.0\.9$"):
        artefacts.check(settings(tmp_path, TAG=f"v{version}"))


@pytest.mark.parametrize(
    ("step", "variable"), [("check", "TAG"), ("push", "REGISTRY"), ("verify", "VERIFY_OPTIONS")]
)
def test_a_setting_without_a_default_is_required(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step: str,
    variable: str,
) -> None:
    monkeypatch.setenv("DIST", str(tmp_path))
    monkeypatch.delenv(variable, raising=False)
    assert main([step]) == 2
    assert f"release: {variable} is not set: set it to " in capsys.readouterr().err


def test_an_unknown_step_is_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["everything"]) == 2
    assert "|".join(STEPS) in capsys.readouterr().err


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    made = settings(tmp_path, PATH="/nowhere")
    with pytest.raises(ReleaseError, match=r"^no-such-program is not installed"):
        made.run("no-such-program")


def test_a_failed_program_ends_the_step_after_its_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = settings(tmp_path, PATH="/bin:/usr/bin")
    with pytest.raises(ReleaseError, match="sh failed with status 3"):
        made.run("sh", "-c", "echo the reason; exit 3")
    assert capsys.readouterr().out.endswith("the reason\n")


def test_sums_and_digests_are_those_of_the_files(tmp_path: Path) -> None:
    made = settings(tmp_path)
    for name in (f"podgpu-{made.version}.tar.gz", f"podgpu-image-{made.version}-amd64.spdx.json"):
        (tmp_path / name).write_bytes(b"")
    index = tmp_path / "index.json"
    index.write_text(json.dumps({"manifests": [{"digest": "sha256:0123"}]}))
    archive = tmp_path / f"podgpu-image-{made.version}-amd64.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(index, "index.json")
    assert publishing.manifest_digest(archive) == "sha256:0123"
    publishing.sums(made)
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert f"{empty}  podgpu-{made.version}.tar.gz" in lines
    assert [line.split("  ")[1] for line in lines] == sorted(
        path.name for path in tmp_path.glob("podgpu-*")
    )


def test_an_archive_that_is_no_oci_archive_is_named(tmp_path: Path) -> None:
    archive = tmp_path / "podgpu-image-0.1.0-amd64.tar"
    with tarfile.open(archive, "w"):
        pass
    with pytest.raises(ReleaseError, match=r"amd64\.tar is no OCI archive"):
        publishing.manifest_digest(archive)


def test_the_provenance_of_a_workflow_names_commit_workflow_and_run() -> None:
    env = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_SERVER_URL": "https://forge.example",
        "GITHUB_REPOSITORY": "owner/name",
        "GITHUB_REF": "refs/tags/v1.2.3",
        "GITHUB_WORKFLOW_REF": "owner/name/.github/workflows/release.yaml@refs/tags/v1.2.3",
        "GITHUB_RUN_ID": "7",
        "GITHUB_RUN_ATTEMPT": "2",
        "RUNNER_ENVIRONMENT": "github-hosted",
    }
    made = predicate(env, revision="ab" * 20, epoch="1795824000")
    workflow = made["buildDefinition"]["externalParameters"]["workflow"]
    assert workflow == {
        "ref": "refs/tags/v1.2.3",
        "repository": "https://forge.example/owner/name",
        "path": ".github/workflows/release.yaml",
    }
    (dependency,) = made["buildDefinition"]["resolvedDependencies"]
    assert dependency["digest"] == {"gitCommit": "ab" * 20}
    assert dependency["uri"] == "git+https://forge.example/owner/name@refs/tags/v1.2.3"
    details = made["runDetails"]
    assert details["builder"]["id"].endswith("/github-hosted")
    assert details["metadata"]["invocationId"].endswith("/owner/name/actions/runs/7/attempts/2")


def test_the_provenance_of_a_build_by_hand_names_no_workflow() -> None:
    made = predicate({"TAG": "v1.2.3"}, revision="ab" * 20, epoch="1795824000")
    assert "github" not in json.dumps(made)
    (dependency,) = made["buildDefinition"]["resolvedDependencies"]
    assert dependency["digest"] == {"gitCommit": "ab" * 20}


# The workflows.


def test_the_workflow_runs_each_step_by_its_target() -> None:
    named = _STEP.findall("\n".join(line for line in RELEASE.splitlines() if "run: make" in line))
    assert sorted(named) == sorted(STEPS)


def test_the_page_about_releasing_names_each_step() -> None:
    page = (DOCS / "releasing.md").read_text(encoding="utf-8")
    assert set(_STEP.findall(page)) == set(STEPS)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    found = [first or second for first, second in _USES.findall(workflow.read_text("utf-8"))]
    assert found
    others = [each for each in found if not each.startswith("./")]
    assert [each for each in others if not _PINNED.fullmatch(each)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_may_only_read_by_default(workflow: Path) -> None:
    document: Any = yaml.safe_load(workflow.read_text(encoding="utf-8"))
    assert document["permissions"] == {"contents": "read"}


def test_the_registry_and_addresses_of_the_workflow_are_variables() -> None:
    document: Any = yaml.safe_load(RELEASE)
    for name in ("REGISTRY", "HOME_PAGE", "SOURCES", "BASE_IMAGE"):
        assert document["env"][name] == f"${{{{ vars.{name} }}}}"


@pytest.mark.parametrize(
    ("variable", "module", "package"),
    [
        ("COSIGN_VERSION", "cosign", "github.com/sigstore/cosign/v3"),
        ("SYFT_VERSION", "syft", "github.com/anchore/syft"),
    ],
)
def test_the_workflow_uses_the_tools_that_are_tested(
    variable: str, module: str, package: str
) -> None:
    document: Any = yaml.safe_load(RELEASE)
    tested = (PEERS / module / "go.mod").read_text(encoding="utf-8")
    assert f"{package} {document['env'][variable]}" in tested
