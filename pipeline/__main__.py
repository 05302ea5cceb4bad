"""`python -m pipeline` is `podgpu`."""

import sys

from pipeline.cli import program

sys.exit(program())
