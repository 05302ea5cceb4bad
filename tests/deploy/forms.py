"""The label forms: in each, the names that differ from the form `dcgm`."""

import re
from collections.abc import Mapping

from pipeline.exposition.naming import FORMS
from pipeline.fields import CATALOGUE

Renamed = Mapping[str, str]

_PLAIN = FORMS["dcgm"]
_LABELS = {
    "UUID": "uuid",
    "Hostname": "hostname",
    "namespace": "namespace",
    "pod": "pod",
    "container": "container",
}
"""The attribute of a form by the label's name in the form `dcgm`."""


def renamed(form: str) -> Renamed:
    """Return the names of a form that differ, by the name in the form `dcgm`."""
    names = next(found for name, found in FORMS.items() if name == form)
    made = {
        old: getattr(names, attribute)
        for old, attribute in _LABELS.items()
        if getattr(names, attribute) != old
    }
    if names.first_metrics:
        made |= {field.metric: field.dcgm_1x for field in CATALOGUE if field.dcgm_1x}
    return made


ALL: Mapping[str, Renamed] = {form: renamed(form) for form in FORMS}


def in_names(text: str, names: Renamed) -> str:
    """Replace the names in an expression; variables keep theirs."""
    return re.sub(r"(?<!\$)\b\w+\b", lambda found: names.get(found[0], found[0]), text)
