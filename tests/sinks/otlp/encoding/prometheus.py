"""What Prometheus makes of a metric's name that comes by OTLP, as far as podgpu's need it.

The default of its receiver: what a name may not hold becomes an underscore, the unit is put behind
the name unless it is a word of it, and then `_total` or `_ratio`.
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
