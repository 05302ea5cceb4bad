"""`usage.enabled`: one switch for the host's PID namespace, the ledger and its folder."""

from typing import Any

import pytest

from sinks.ledger.options import Options
from tests.deploy.manifests import Manifests
from tests.e2e.charts import Values, sink
from tests.e2e.helm import Helm
from tests.e2e.installation import merged

ON: Values = {"usage": {"enabled": True}}


def ledgers(made: Manifests) -> dict[str, Options]:
    return {
        name: each.options  # type: ignore[misc]
        for name, each in made.config().sinks.items()
        if each.kind == "ledger"
    }


def test_by_default_there_is_no_ledger_and_no_access_to_processes(helm: Helm) -> None:
    made = helm.template()
    assert ledgers(made) == {}
    assert "hostPID" not in made.pod
    assert "/var/lib/podgpu" not in made.mounts


@pytest.mark.parametrize("preset", ["kubernetes", "gpus", "runtime", "koordinator"])
def test_the_switch_sets_the_namespace_the_ledger_and_its_folder(helm: Helm, preset: str) -> None:
    made = helm.template({**ON, "preset": preset})
    assert made.pod["hostPID"] is True
    assert {name: str(each.path) for name, each in ledgers(made).items()} == {
        "usage": "/var/lib/podgpu/usage.db"
    }
    assert made.mounts["/var/lib/podgpu"] == ("/var/lib/podgpu", False)
    assert made.container["securityContext"]["runAsUser"] == 0
    # Two pods cannot write one file.
    assert made.one("DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 0


def test_the_file_and_the_options_of_the_ledger_can_be_set(helm: Helm) -> None:
    values: dict[str, Any] = merged(
        {"usage": {"enabled": True, "path": "/srv/gpu/usage.db"}}, sink("usage", keep="30d")
    )
    made = helm.template(values)
    (ledger,) = ledgers(made).values()
    assert (str(ledger.path), str(ledger.keep)) == ("/srv/gpu/usage.db", "30d")
    assert made.mounts["/srv/gpu"] == ("/srv/gpu", False)


def test_a_ledger_of_the_configuration_is_used(helm: Helm) -> None:
    """A second one would write the same data again."""
    made = helm.template(merged(ON, sink("book", kind="ledger", path="/srv/gpu/book.db")))
    assert list(ledgers(made)) == ["book"]
    assert made.pod["hostPID"] is True
    assert "/var/lib/podgpu" not in made.mounts


def test_openshift_allows_the_namespace(helm: Helm) -> None:
    made = helm.template({**ON, "distribution": "openshift"})
    assert made.one("SecurityContextConstraints")["allowHostPID"] is True
