"""The check `checkpoint.file`."""

from functools import partial
from pathlib import Path

from config.value_types import ByteSize
from pipeline.component.findings import Finding, Verdict
from pipeline.diagnostics.check_runner import findings_of
from sources.checkpoint.doctor import examine
from sources.checkpoint.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write
from tests.sources.checkpoint.checkpoints import checkpoint, entry


async def check_file(folder: Path, path: Path, max_size: str = "32MiB") -> Finding:
    options = Options(path=path, max_size=ByteSize.parse(max_size))
    found = await findings_of(partial(examine, options, context(folder / "ctx")))
    return of(found, "checkpoint.file")


async def test_a_valid_checkpoint_is_ok(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(checkpoint(entry()))
    finding = await check_file(tmp_path, path)
    assert finding.verdict is Verdict.OK
    assert finding.observed.startswith("1 containers hold devices; written ")


async def test_an_entry_with_an_invalid_response_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(checkpoint(entry(alloc="%%%")))
    is_bad(await check_file(tmp_path, path), "warning", "AllocResp", "fix what the kubelet writes")


async def test_a_folder_that_is_not_mounted_is_a_failure(tmp_path: Path) -> None:
    finding = await check_file(tmp_path, tmp_path / "none/checkpoint")
    is_bad(finding, "failure", "it is not mounted", f"mount the folder {tmp_path}/none")
    assert "/var/lib/k0s/kubelet of k0s" in finding.fix


async def test_a_folder_without_the_file_is_a_failure(tmp_path: Path) -> None:
    finding = await check_file(tmp_path, tmp_path / "checkpoint")
    is_bad(finding, "failure", "the file does not", "the kubelet runs")
    assert "/var/lib/k0s/kubelet of k0s" in finding.fix


async def test_a_file_of_another_format_is_a_failure(tmp_path: Path) -> None:
    finding = await check_file(tmp_path, write(tmp_path / "checkpoint", "[]"))
    is_bad(finding, "failure", "is not a checkpoint of the kubelet", "that path names its file")


async def test_a_file_over_max_size_is_a_failure(tmp_path: Path) -> None:
    path = write(tmp_path / "checkpoint", "x" * 2000)
    finding = await check_file(tmp_path, path, "1KiB")
    is_bad(finding, "failure", "larger than the maximum", "raise max_size")


async def test_a_folder_instead_of_the_file_is_a_failure(tmp_path: Path) -> None:
    is_bad(
        await check_file(tmp_path, tmp_path), "failure", "is not a regular file", "path of a file"
    )
