"""The label `hpc_job` of readings: the jobs of a batch system that use the device.

As in dcgm-exporter with `--hpc-job-mapping-dir`: each reading has one series for each job of its
device, and a reading of a device without jobs has no such label.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pipeline.exposition.naming import JOB_LABEL
from pipeline.exposition.text_format import labels

_WITHOUT: Final = (b"",)


class JobLabels:
    """Renders the label `hpc_job`.

    Args:
        jobs: ids of the jobs by device uuid.
    """

    def __init__(self, jobs: Mapping[str, tuple[str, ...]]) -> None:
        self._rendered = {
            # Ids may differ only in characters that are replaced.
            uuid: tuple(dict.fromkeys(b"," + labels(((JOB_LABEL, job),)) for job in ids))
            for uuid, ids in jobs.items()
        }

    def of_reading(self, uuid: str, *, own: bool, named: bool = False) -> Sequence[bytes]:
        """Return the label of each series of a reading, with a comma in front; or one empty text.

        Args:
            uuid: uuid of the device for which the reading is shown.
            own: whether the metric family has podgpu's prefix. dcgm-exporter does not have it, so
                it is not copied: if the device has several jobs, it has one series without a job.
            named: whether the holder is a job, so that the reading has the label already.
        """
        if named:
            return _WITHOUT
        rendered = self._rendered.get(uuid, _WITHOUT)
        return _WITHOUT if own and len(rendered) > 1 else rendered
