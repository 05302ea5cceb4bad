"""The name that Prometheus gives to a metric received by OTLP, as far as podgpu's names need it.

The default of its receiver: invalid characters become underscores, the unit is appended
unless it is already a word of the name, and then `_total` or `_ratio`.
"""

import re

_WORDS = {
    "By": "bytes",
    "MiBy": "mebibytes",
    "s": "seconds",
    "ns": "nanoseconds",
    "J": "joules",
    "W": "watts",
    "Cel": "celsius",
    "Hz": "hertz",
    "%": "percent",
    "1": "",
}


def name_of(name: str, unit: str, kind: str) -> str:
    words = [word for word in re.split(r"[^a-zA-Z0-9]", name) if word]
    main, _, per = re.sub(r"\{[^}]*\}", "", unit).partition("/")
    word = _WORDS.get(main, main)
    if word and word not in words:
        words.append(word)
    if per:
        words += [part for part in ("per", {"s": "second"}[per]) if part not in words]
    if kind == "counter":
        words = [*(word for word in words if word != "total"), "total"]
    elif unit == "1" and kind == "gauge":
        words = [*(word for word in words if word != "ratio"), "ratio"]
    return "_".join(words)
