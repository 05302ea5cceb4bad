"""What the doctor says of the kubelet's checkpoint, each fault provoked."""

from pathlib import Path

from config.value_types import ByteSize
from pipeline.component.findings import Finding, Verdict
from sources.checkpoint.doctor import examine
from sources.checkpoint.options import Options
from tests.podgpu.doctor.support import context, is_bad, of, write
from tests.sources.checkpoint.files import checkpoint, entry


async def looked(folder: Path, path: Path, most: str = "32MiB") -> Finding:
    options = Options(path=path, max_size=ByteSize.parse(most))
    found = await examine(options, context(folder / "ctx"))
    return of(found, "checkpoint.file")


async def test_a_good_checkpoint_is_well(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(checkpoint(entry()))
    given_out = await looked(tmp_path, path)
    assert given_out.verdict is Verdict.OK
    assert given_out.observed.startswith("1 containers hold devices; written ")


async def test_an_entry_whose_answer_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(checkpoint(entry(alloc="%%%")))
    is_bad(await looked(tmp_path, path), "warning", "AllocResp", "the kubelet that writes them")


async def test_a_folder_that_is_not_mounted(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, tmp_path / "none/checkpoint")
    is_bad(given_out, "failure", "it is not mounted", f"mount the folder {tmp_path}/none")
    assert "/var/lib/k0s/kubelet of k0s" in given_out.fix


async def test_a_folder_without_the_file(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, tmp_path / "checkpoint")
    is_bad(given_out, "failure", "the file does not", "the kubelet runs")
    assert "/var/lib/k0s/kubelet of k0s" in given_out.fix


async def test_a_file_of_another_form(tmp_path: Path) -> None:
    given_out = await looked(tmp_path, write(tmp_path / "checkpoint", "[]"))
    is_bad(given_out, "failure", "is not a checkpoint of the kubelet", "that path names its file")


async def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = write(tmp_path / "checkpoint", "x" * 2000)
    given_out = await looked(tmp_path, path, "1KiB")
    is_bad(given_out, "failure", "larger than max_size", "raise max_size")


async def test_a_folder_in_its_place(tmp_path: Path) -> None:
    is_bad(await looked(tmp_path, tmp_path), "failure", "is not a regular file", "path of a file")
