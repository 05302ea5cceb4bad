"""The provenance of a release: a predicate of SLSA 1.0 (https://slsa.dev/spec/v1.0/provenance).

cosign adds the subject, an artefact by its digest, and signs both. The build writes its provenance
itself, so that it is as trustworthy as the workflow: level 1, and with keyless signing, whose
certificate names the workflow and the commit, the origin of level 2.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_WORKFLOW = "https://actions.github.io/buildtypes/workflow/v1"
"""The build type of a workflow of GitHub; it defines the parameters below."""
_BY_HAND = "urn:podgpu:make-release"
"""The build type of `make release-...` on a machine that no workflow controls."""
_HOSTED = "https://github.com/actions/runner/"


def predicate(env: Mapping[str, str], *, revision: str, epoch: str) -> dict[str, Any]:
    """Return the predicate for the artefacts of this commit.

    Args:
        env: the environment; a workflow of GitHub has `GITHUB_ACTIONS=true`.
        revision: the commit of the sources, of 40 hexadecimal digits.
        epoch: the time of the commit in seconds since 1970.
    """
    sources = {"digest": {"gitCommit": revision}}
    parameters: dict[str, Any]
    if env.get("GITHUB_ACTIONS") == "true":
        repository = f"{env['GITHUB_SERVER_URL']}/{env['GITHUB_REPOSITORY']}"
        path = env["GITHUB_WORKFLOW_REF"].partition("@")[0]
        path = path.removeprefix(f"{env['GITHUB_REPOSITORY']}/")
        kind = _WORKFLOW
        workflow = {"ref": env["GITHUB_REF"], "repository": repository, "path": path}
        parameters = {"workflow": workflow}
        uri = f"git+{repository}@{env['GITHUB_REF']}"
        builder = _HOSTED + env["RUNNER_ENVIRONMENT"]
        run, attempt = env["GITHUB_RUN_ID"], env["GITHUB_RUN_ATTEMPT"]
        invocation = {"invocationId": f"{repository}/actions/runs/{run}/attempts/{attempt}"}
    else:
        kind = _BY_HAND
        parameters = {"tag": env.get("TAG", "")}
        uri = "git+file:."
        builder = f"{_BY_HAND}:local"
        invocation = {}
    committed = datetime.fromtimestamp(int(epoch), UTC)
    sources["annotations"] = {"committed": f"{committed:%Y-%m-%dT%H:%M:%SZ}"}
    return {
        "buildDefinition": {
            "buildType": kind,
            "externalParameters": parameters,
            "resolvedDependencies": [{"uri": uri, **sources}],
        },
        "runDetails": {"builder": {"id": builder}, "metadata": invocation},
    }
