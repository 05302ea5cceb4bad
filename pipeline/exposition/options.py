"""What can be set for a page, whichever sink hands it on."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from config.option_markers import Doc

Inline: TypeAlias = Literal["pod_uid", "labels", "annotations"]
LabelForm: TypeAlias = Literal["dcgm", "dcgm-hostname", "dcgm-old", "dcgm-1x"]


class PageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of every sink that shows a page."""

    labels: Annotated[
        LabelForm,
        Doc(
            "Whose names the labels have: dcgm-exporter's, its newest releases' (hostname), its "
            "old ones (uuid, pod_name, ...), or those and the metric names of 1.x."
        ),
    ] = "dcgm"
    inline: Annotated[
        tuple[Inline, ...],
        Doc("What every reading says of the pod that holds its device, besides the names."),
    ] = ()
    containers: Annotated[
        bool, Doc("Whether readings say which namespace, pod and container hold the device.")
    ] = True
    hostname: Annotated[bool, Doc("Whether the node's name stands on each series.")] = True
    replace_model_blanks: Annotated[bool, Doc("Put dashes for the blanks in modelName.")] = False
    pod_label_prefix: Annotated[
        str,
        msgspec.Meta(pattern=r"^(_?[a-zA-Z][a-zA-Z0-9_]*)?$"),
        Doc("What stands before the names of pods' labels; may be empty."),
    ] = "label_"
    sharing: Annotated[
        Literal["info", "copies"],
        Doc(
            "A device that several hold: its readings once and without a container, or a copy for "
            "each holder, with the label vgpu."
        ),
    ] = "info"
