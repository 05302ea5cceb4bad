"""Asks Slurm about one job, so that no text of a user is taken for something else."""

from sources.slurm.job_record import JobRecord, is_certain, job_record, place
from sources.slurm.slurm_commands import SlurmCommands, SlurmError, TooLongError


async def ask(slurm: SlurmCommands, job: str, node: str) -> JobRecord:
    """Return what Slurm knows of a job.

    The answer may also have other jobs, if the id is that of an array or of a heterogeneous job
    too, and a text of a user may look like a part of it. Then its name and its place in the array
    are asked, and the job by its place.

    Args:
        slurm: answers.
        job: its id.
        node: Slurm's name of this node.

    Raises:
        UnknownJobError: Slurm does not know the job.
        SlurmError: there is no answer, or it can be read in several ways.
    """
    name = None
    try:
        text = await slurm.job(job)
    except TooLongError:
        text = ""
    if not is_certain(text):
        where = place(await slurm.places(job), job)
        if not where:
            raise SlurmError("squeue does not show it")
        name = await slurm.name(where)
        text = await slurm.job(where)
        if is_certain(text):  # as usual: it was an array
            name = None
    record = job_record(text, job, node, name)
    if record is None:
        raise SlurmError(
            "its name looks like a part of scontrol's answer, or scontrol's answer has another form"
        )
    return record
