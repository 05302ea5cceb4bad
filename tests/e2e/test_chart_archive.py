"""`archive.enabled` adds a container that writes the archive; `archive.compaction` is a CronJob."""

from typing import Any

import pytest

from podgpu.cli.commands import command_parser
from tests.deploy.manifests import Manifests
from tests.e2e.charts import Values, sink
from tests.e2e.helm import Helm, HelmError
from tests.e2e.installation import merged

ON: Values = {
    "usage": {"enabled": True},
    "archive": {"enabled": True, "to": "s3://bucket/gpus", "cluster": "east"},
}
COMPACTION: Values = {"archive": {"to": "s3://bucket/gpus", "compaction": {"enabled": True}}}


def container(made: Manifests) -> Any:
    (found,) = [each for each in made.pod["containers"] if each["name"] == "archive"]
    return found


def mounts(made: Manifests) -> dict[str, str]:
    return {each["mountPath"]: each["name"] for each in container(made)["volumeMounts"]}


def test_by_default_there_is_neither(helm: Helm) -> None:
    for values in ({}, {"usage": {"enabled": True}}):
        made = helm.template(values)
        assert [each["name"] for each in made.pod["containers"]] == ["podgpu"]
        assert [each for each in made.objects if each["kind"] == "CronJob"] == []


def test_the_container_writes_the_ledger_of_the_pod(helm: Helm) -> None:
    made = helm.template(ON)
    arguments = command_parser().parse_args(container(made)["args"])
    assert (arguments.to, arguments.cluster) == ("s3://bucket/gpus", "east")
    assert str(arguments.ledger) == "/var/lib/podgpu/usage.db"
    assert mounts(made).keys() == {"/var/lib/podgpu", "/tmp"}
    (podgpus,) = [
        each for each in made.container["volumeMounts"] if each["mountPath"] == "/var/lib/podgpu"
    ]
    assert mounts(made)["/var/lib/podgpu"] == podgpus["name"]
    assert container(made)["image"] == made.container["image"]


def test_the_container_has_the_user_of_the_ledger_and_no_privilege(helm: Helm) -> None:
    values = merged(ON, {"securityContext": {"privileged": True}})
    context = container(helm.template(values))["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"]) == (0, False)
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert "privileged" not in context


@pytest.mark.parametrize(("grace", "seconds"), [("5s", 15), ("20s", 25), ("2m", 125)])
def test_the_pod_ends_after_the_last_write(helm: Helm, grace: str, seconds: int) -> None:
    made = helm.template(merged(ON, {"archive": {"grace": grace}}))
    assert made.pod["terminationGracePeriodSeconds"] == seconds


def test_credentials_are_only_in_the_container_that_needs_them(helm: Helm) -> None:
    secret = [{"secretRef": {"name": "podgpu-archive"}}]
    region = {"name": "AWS_REGION", "value": "eu-west-1"}
    made = helm.template(merged(ON, {"archive": {"envFrom": secret, "env": [region]}}))
    assert container(made)["envFrom"] == secret
    assert region in container(made)["env"]
    assert "envFrom" not in made.container
    assert region not in made.container["env"]


def test_one_of_several_ledgers_is_chosen_by_its_path(helm: Helm) -> None:
    two = merged(
        sink("a", kind="ledger", path="/srv/a/usage.db"),
        sink("b", kind="ledger", path="/srv/b/usage.db"),
    )
    values = merged(two, {"archive": {**ON["archive"], "ledger": "/srv/b/usage.db"}})
    made = helm.template(values)
    assert "--ledger=/srv/b/usage.db" in container(made)["args"]
    assert "/srv/b" in mounts(made)
    with pytest.raises(HelmError, match="config has 2 ledgers"):
        helm.template(merged(two, {"archive": ON["archive"]}))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"archive": ON["archive"]}, "there is no ledger to write; set usage.enabled=true"),
        ({"archive": ON["archive"], "dcgmExporter": True}, "there is no ledger to write"),
        (merged(ON, {"archive": {"to": ""}}), "archive.to: give the archive"),
        (merged(ON, {"archive": {"cluster": ""}}), "archive.cluster: give the cluster's name"),
        (merged(ON, {"archive": {"ledger": "/x/y"}}), "config has no ledger with the path /x/y"),
        (merged(ON, {"archive": {"to": "bucket"}}), "at '/archive/to'"),
        ({"archive": {"compaction": {"enabled": True}}}, "archive.to: give the archive"),
    ],
)
def test_invalid_values_are_refused_with_a_fix(helm: Helm, values: Values, message: str) -> None:
    with pytest.raises(HelmError) as refused:
        helm.template(values)
    assert message in str(refused.value)


def test_compaction_is_a_cron_job_without_rights_at_the_api_server(helm: Helm) -> None:
    values = merged(
        COMPACTION,
        {"archive": {"compaction": {"serviceAccountAnnotations": {"role": "compact"}}}},
    )
    made = helm.template(values)
    job = made.one("CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (only,) = pod["containers"]
    arguments = command_parser().parse_args(only["args"])
    assert arguments.location == "s3://bucket/gpus"
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert pod["automountServiceAccountToken"] is False
    accounts = {
        each["metadata"]["name"]: each["metadata"].get("annotations")
        for each in made.objects
        if each["kind"] == "ServiceAccount"
    }
    assert accounts[pod["serviceAccountName"]] == {"role": "compact"}
    bound = [
        subject["name"]
        for each in made.objects
        if each["kind"].endswith("RoleBinding")
        for subject in each["subjects"]
    ]
    assert pod["serviceAccountName"] not in bound
    assert only["securityContext"]["runAsNonRoot"] is True
