"""`python -m podgpu` is `podgpu`."""

import sys

from podgpu.cli import program

sys.exit(program())
