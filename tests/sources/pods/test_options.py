from config.value_types import Duration
from pipeline.component.contracts import Source
from pipeline.component.registry import KINDS, build_source, load
from sources.pods.options import Options


def test_the_options_have_defaults() -> None:
    assert Options() == Options(
        kubeconfig=None,
        node="",
        labels=(),
        label_patterns=(),
        annotations=(),
        max_labels=20,
        max_age=Duration(300),
        resource_slices=True,
        schedulers=("koordinator", "hami", "volcano", "gpushare", "kai"),
        reservation_namespaces=("kai-resource-reservation", "runai-reservation"),
        device_annotations=(),
    )


def test_the_kind_is_registered() -> None:
    assert load(KINDS["source", "pods"].options) is Options
    source: Source = build_source("pods", Options())
    assert callable(source.run)


def test_an_invalid_pattern_is_reported_with_its_faulty_part() -> None:
    options = Options(label_patterns=("^team$", "app[", "(x"))
    hint = "write it in the syntax of Go and Prometheus"
    assert list(options.problems()) == [
        (
            "label_patterns",
            f'"app[" is not a regular expression: missing ]: [; {hint}',
        ),
        (
            "label_patterns",
            f'"(x" is not a regular expression: missing ): (x; {hint}',
        ),
    ]
