"""Libraries that do something when they are loaded."""

import subprocess
from pathlib import Path

HANGS = "for (;;) pause();"
BREAKS = "abort();"


def library(path: Path, does: str) -> Path:
    """Build one."""
    begin = "#include <stdlib.h>\n#include <unistd.h>\n__attribute__((constructor)) void f() "
    text = f"{begin}{{{does}}}"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=text, text=True, check=True, timeout=25)
    return path
