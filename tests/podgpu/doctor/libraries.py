"""Libraries that hang or abort when they are loaded."""

import subprocess
from pathlib import Path

HANGS = "for (;;) pause();"
BREAKS = "abort();"


def library(path: Path, code: str) -> Path:
    """Build a library that runs C code when it is loaded."""
    begin = "#include <stdlib.h>\n#include <unistd.h>\n__attribute__((constructor)) void f() "
    text = f"{begin}{{{code}}}"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=text, text=True, check=True, timeout=25)
    return path
