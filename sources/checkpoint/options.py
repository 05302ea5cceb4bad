"""Options of the source `checkpoint`."""

from pathlib import Path
from typing import Annotated

import msgspec

from config.option_markers import AtLeast, Doc
from config.value_types import ByteSize
from pipeline.allocations.gpu_resources import DEFAULT_RESOURCES
from pipeline.component.claim_file_options import ClaimFileOptions


class Options(ClaimFileOptions, frozen=True, kw_only=True):
    """The path of the kubelet's checkpoint, and which resources are GPUs."""

    path: Annotated[
        Path,
        Doc("The file. Mount its folder, not the file: the kubelet replaces the file."),
    ] = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
    resources: Annotated[
        tuple[str, ...],
        msgspec.Meta(min_length=1),
        Doc(
            "Extended resources that can be GPUs, as glob patterns; all others are ignored. A "
            "pattern after ! excludes resources; exclusions alone apply to the default."
        ),
    ] = DEFAULT_RESOURCES
    max_size: Annotated[
        ByteSize, AtLeast("1KiB"), Doc("The size limit; a larger file is not read.")
    ] = ByteSize.parse("32MiB")
