"""`python -m pipeline` is `podgpu`."""

import sys

from pipeline.cli import main

sys.exit(main())
