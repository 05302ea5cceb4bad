"""Entry point of `python -m podgpu`, which is the same as the command `podgpu`."""

import sys

from podgpu.cli import program

sys.exit(program())
