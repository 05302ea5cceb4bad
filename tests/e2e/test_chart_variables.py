"""Variables, labels and annotations: one's own beside the chart's."""

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
"""With all the variables that the chart sets."""


def test_a_variable_of_one_s_own_stands_in_the_chart_s_place(helm: Helm) -> None:
    """Server-side apply refuses a list that has one name twice."""
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
    ("values", "said"),
    [
        ({"extraEnv": [{"name": "A", "value": "1"}, {"name": "A"}]}, "extraEnv: A stands there"),
        ({"extraEnv": [{"name": "A", "value": 1}]}, "at '/extraEnv/0/value': got number"),
        ({"extraEnv": [{"name": "A", "value": True}]}, "at '/extraEnv/0/value': got boolean"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "podLabels: app.kubernetes.io/name is"),
        ({"podLabels": {"rack": 7}}, "at '/podLabels/rack': got number"),
    ],
    ids=str,
)
def test_what_can_stand_there_once_alone_and_as_text(helm: Helm, values: Values, said: str) -> None:
    with pytest.raises(HelmError) as caught:
        helm.template(values)
    assert said in str(caught.value)


def test_an_annotation_of_one_s_own_stands_in_the_chart_s_place(helm: Helm) -> None:
    own = {"kubectl.kubernetes.io/default-container": "other", "checksum/config": "mine"}
    text = helm.template({"podAnnotations": own}).text
    assert text.count("kubectl.kubernetes.io/default-container: other") == 1
    assert text.count("kubectl.kubernetes.io/default-container:") == 1
    assert text.count("checksum/config:") == 1
