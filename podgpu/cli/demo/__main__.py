"""Write the sample data of `podgpu demo`, in its own process: `python -m podgpu.cli.demo FILE`."""

import gc
import sys
from pathlib import Path

from pipeline.base.clock import SystemClock
from pipeline.ledger.file_open import LedgerError
from pipeline.recording import RecordingError
from podgpu.cli.demo.ledger_file import write
from podgpu.cli.demo.recorded_node import read_node
from sources.replay.options import DEMO, recording_path


def main(path: Path) -> int:
    """Write the ledger; return the exit status. The last line on stderr says what is wrong."""
    gc.disable()  # it finds no cycles, and takes a third of the time
    try:
        write(path, read_node(recording_path(DEMO)), SystemClock().now())
    except (LedgerError, RecordingError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{path}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
