"""The source `jobfiles`: emits the jobs of each GPU when the files change."""

from typing import Final

from pipeline.component.contracts import SourceContext
from pipeline.files.bounded_read import AbsentError, UnreadableError, run_in_executor
from pipeline.files.file_watch import Watcher
from pipeline.model import NS, JobsReplaced, SourceLost
from sources.jobfiles.job_folder import JobFolder, read_folder
from sources.jobfiles.options import Options

ABSENT: Final = "create it when the node starts, and let the prolog of a job write the files"


class JobFilesSource:
    """Implements `pipeline.component.contracts.Source`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._fault = ""
        self._problems: tuple[str, ...] = ()

    async def run(self, ctx: SourceContext) -> None:
        """Emit the jobs when a file changes, and confirm them at each `interval`."""
        options = self._options

        def read() -> JobFolder | UnreadableError:
            watcher.arm()
            try:
                return read_folder(options.path)
            except UnreadableError as error:
                return error

        with Watcher(options.path, entries=True) as watcher:
            while True:
                watcher.open()
                watcher.forget()
                start_ns = ctx.clock.now().mono_ns
                found = await run_in_executor(read)()
                took_ns = ctx.clock.now().mono_ns - start_ns
                watcher.log_state(ctx.log)
                if isinstance(found, JobFolder):
                    await self._report(ctx, found)
                else:
                    await self._lose(ctx, found)
                await watcher.wait(float(options.interval))
                # If files are written all the time, reading takes at most half of a CPU core.
                await ctx.clock.sleep(took_ns / NS)

    async def _report(self, ctx: SourceContext, found: JobFolder) -> None:
        if self._fault:
            ctx.log.info("%s is readable again", self._options.path)
            self._fault = ""
        for problem in found.problems:
            if problem not in self._problems:
                ctx.log.warning("%s; readings of its device have no label hpc_job", problem)
        if self._problems and not found.problems:
            ctx.log.info("%s: all files are readable again", self._options.path)
        self._problems = found.problems
        await ctx.emit(JobsReplaced(found.devices, self._options.max_age.ns))

    async def _lose(self, ctx: SourceContext, error: UnreadableError) -> None:
        text = f"{error}; {ABSENT}" if isinstance(error, AbsentError) else str(error)
        if isinstance(error, AbsentError):
            # As in dcgm-exporter: without the folder, no job is known.
            await ctx.emit(JobsReplaced((), self._options.max_age.ns))
        if text != self._fault:
            ctx.log.warning("%s", text)
            self._fault = text
        await ctx.emit(SourceLost(text))
