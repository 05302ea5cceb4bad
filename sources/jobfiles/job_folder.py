"""Read the files that list the jobs of each GPU, by the rules of dcgm-exporter.

A file is named after the GPU's index (`0`), or after the index and the GPU instance of a MIG
instance (`0.7`). Each line is the id of a job. A line that is repeated counts once. An empty file
means that the GPU is idle. Files with other names, and folders, are ignored.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.value_types import ByteSize
from pipeline.files.bounded_read import AbsentError, UnreadableError, read_file
from pipeline.model import DeviceJobs

MAX_JOBS: Final = 1000
"""How many jobs a file may list. A GPU is shared by fewer jobs."""

_MAX_SIZE: Final = ByteSize.parse("64KiB")
_MAX_FILES: Final = 4096
# dcgm-exporter also accepts names such as `00`, but finds no GPU with this index.
_NUMBER: Final = r"(0|[1-9][0-9]{0,8})"
_NAME: Final = re.compile(rf"{_NUMBER}(?:\.{_NUMBER})?")


@dataclass(frozen=True, slots=True)
class JobFolder:
    """What the files of a folder list.

    Attributes:
        devices: the devices that have a file which lists jobs, by index.
        problems: why files are not used, as texts for users.
    """

    devices: tuple[DeviceJobs, ...]
    problems: tuple[str, ...] = ()


def read_folder(folder: Path) -> JobFolder:
    """Read all files of a folder. Blocking.

    Raises:
        UnreadableError: the folder cannot be read.
    """
    devices, problems = [], []
    for gpu, gpu_instance, name in sorted(_names(folder), key=_place):
        try:
            jobs = _jobs(folder / name)
        except AbsentError:  # it was deleted since the folder was listed
            continue
        except UnreadableError as error:
            problems.append(str(error))
            continue
        if jobs:
            devices.append(DeviceJobs(gpu, gpu_instance, jobs))
    return JobFolder(tuple(devices), tuple(problems))


def _names(folder: Path) -> list[tuple[int, int | None, str]]:
    """Return the files of devices: index, GPU instance and name."""
    found: list[tuple[int, int | None, str]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                matched = _NAME.fullmatch(entry.name)
                if matched is None or entry.is_dir(follow_symlinks=False):
                    continue
                gpu, gpu_instance = matched.groups()
                place = int(gpu), int(gpu_instance) if gpu_instance is not None else None
                found.append((*place, entry.name))
                if len(found) > _MAX_FILES:
                    raise UnreadableError(f"{folder}: has more than {_MAX_FILES} files of devices")
    except FileNotFoundError:
        raise AbsentError(f"{folder}: no such folder") from None
    except NotADirectoryError:
        raise UnreadableError(f"{folder}: is not a folder") from None
    except PermissionError:
        raise UnreadableError(f"{folder}: permission denied to uid {os.geteuid()}") from None
    except OSError as error:
        raise UnreadableError(f"{folder}: {(error.strerror or str(error)).lower()}") from None
    return found


def _place(entry: tuple[int, int | None, str]) -> tuple[int, int]:
    gpu, gpu_instance, _ = entry
    return gpu, -1 if gpu_instance is None else gpu_instance


def _jobs(path: Path) -> tuple[str, ...]:
    text = (read_file(path, _MAX_SIZE, None).data or b"").decode(errors="replace")
    # As Go's scanner of lines: the last line need not end, and the end may be \r\n.
    lines = (
        [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    )
    jobs = tuple(dict.fromkeys(lines))
    if len(jobs) > MAX_JOBS:
        raise UnreadableError(f"{path}: lists more than {MAX_JOBS} jobs")
    return jobs
