"""focus-validator, the FinOps Foundation's check of FOCUS datasets, in an environment of its own.

Its libraries have 400 MB, and versions that podgpu's own tests do not use. It needs no network when
it runs.
"""

import csv
import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tests.e2e.peers import BUILT

_PINS: Final = Path(__file__).parent / "peers" / "focus_validator" / "requirements.txt"
_LIMIT: Final = 600
"""Timeout of the installation in seconds."""

RENAMED: Final[Mapping[str, str]] = {
    "InvoiceIssuerName": "InvoiceIssuer",
    "ProviderName": "Provider",
    "PublisherName": "Publisher",
    "ResourceId": "ResourceID",
}
"""Columns of FOCUS 1.0 that the validator's rules for 1.0 expect under another name."""


def installed() -> Path:
    """Return the folder of the environment; install it if missing, which takes about a minute."""
    digest = hashlib.sha256(_PINS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = BUILT / f"focus_validator-{digest}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        venv.create(unfinished, with_pip=True)
        pip = [f"{unfinished}/bin/python", "-m", "pip", "--disable-pip-version-check", "-q"]
        subprocess.run([*pip, "install", "--no-deps", "-r", _PINS], check=True, timeout=_LIMIT)
        unfinished.rename(folder)
    return folder


def problems(environment: Path, rows: Iterable[Mapping[str, str]], folder: Path) -> str:
    """Return what the validator reports about rows, with its rules for FOCUS 1.0.

    The validator gets a copy in which columns have the names of its rules. One of its rules is
    about the column ChargeType of FOCUS 0.5, which is now ChargeCategory.

    Args:
        environment: the folder that `installed` returns.
        rows: the rows of an export.
        folder: a folder for the copy.

    Returns:
        The validator's output; it is `Validation succeeded.` if no rule is broken.
    """
    renamed = [
        {RENAMED.get(name, name): value for name, value in row.items()}
        | {"ChargeType": row["ChargeCategory"]}
        for row in rows
    ]
    data = folder / "focus.csv"
    with data.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(renamed[0]))
        writer.writeheader()
        writer.writerows(renamed)
    # It reads its list of currencies relative to the working directory.
    (packages,) = environment.glob("lib/python3*/site-packages")
    program = [f"{environment}/bin/python", "-m", "focus_validator.main"]
    command = [*program, "--data-file", str(data), "--validate-version", "1.0"]
    found = subprocess.run(
        command, cwd=packages, capture_output=True, text=True, timeout=120, check=False
    )
    return f"{found.stdout}{found.stderr}".strip()
