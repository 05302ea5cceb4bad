"""Variables, labels and annotations of the user in addition to the chart's."""

import pytest

from tests.e2e.charts import Values
from tests.e2e.helm import Helm, HelmError

EVERYTHING: Values = {
    "arguments": ["-k"],
    "driverRoot": "/run/nvidia/driver",
    "kubernetes": {"enablePodLabels": True, "enablePodUID": True, "podLabelAllowlistRegex": ["a"]},
    "kubernetesDRA": {"enabled": True},
    "tlsServerConfig": {"enabled": True},
}
"""Values with which the chart sets all of its variables."""


def test_an_extra_variable_replaces_the_one_of_the_chart(helm: Helm) -> None:
    """Server-side apply refuses a list with duplicate names."""
    names = [each["name"] for each in helm.template(EVERYTHING).container["env"]]
    assert len(names) == 11
    own = [{"name": name, "value": f":{at}"} for at, name in enumerate(names, start=9400)]
    made = helm.template({**EVERYTHING, "extraEnv": own}).container["env"]
    assert made == own
    for each in own:
        env = helm.template({**EVERYTHING, "extraEnv": [each]}).container["env"]
        assert sorted(it["name"] for it in env) == sorted(names)
        assert env[-1] == each


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"extraEnv": [{"name": "A", "value": "1"}, {"name": "A"}]}, "extraEnv: A occurs twice"),
        ({"extraEnv": [{"name": "A", "value": 1}]}, "at '/extraEnv/0/value': got number"),
        ({"extraEnv": [{"name": "A", "value": True}]}, "at '/extraEnv/0/value': got boolean"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "podLabels: app.kubernetes.io/name is"),
        ({"podLabels": {"rack": 7}}, "at '/podLabels/rack': got number"),
    ],
    ids=str,
)
def test_duplicate_and_non_text_variables_and_labels_are_refused(
    helm: Helm, values: Values, message: str
) -> None:
    with pytest.raises(HelmError) as caught:
        helm.template(values)
    assert message in str(caught.value)


def test_a_pod_annotation_replaces_the_one_of_the_chart(helm: Helm) -> None:
    own = {"kubectl.kubernetes.io/default-container": "other", "checksum/config": "mine"}
    text = helm.template({"podAnnotations": own}).text
    assert text.count("kubectl.kubernetes.io/default-container: other") == 1
    assert text.count("kubectl.kubernetes.io/default-container:") == 1
    assert text.count("checksum/config:") == 1
