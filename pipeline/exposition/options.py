"""Options of a page, common to all sinks that publish one."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from config.option_markers import Doc

Inline: TypeAlias = Literal["pod_uid", "labels", "annotations", "resource_claims"]
Sharing: TypeAlias = Literal["info", "claims", "copies"]
LabelForm: TypeAlias = Literal["dcgm", "dcgm-hostname", "dcgm-old", "dcgm-1x"]


class PageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of every sink that publishes a page."""

    labels: Annotated[
        LabelForm,
        Doc(
            "Label names: dcgm (dcgm-exporter), dcgm-hostname (its newest releases: hostname), "
            "dcgm-old (old releases: uuid, pod_name, ...), dcgm-1x (also the metric names of 1.x)."
        ),
    ] = "dcgm"
    inline: Annotated[
        tuple[Inline, ...],
        Doc(
            "What to add to every reading about the pod that holds its device, and the "
            "ResourceClaim by which it holds it."
        ),
    ] = ()
    containers: Annotated[
        bool, Doc("Whether readings have the namespace, pod and container of the holder as labels.")
    ] = True
    hostname: Annotated[bool, Doc("Whether each series has the node's name as a label.")] = True
    replace_model_blanks: Annotated[bool, Doc("Replace blanks in modelName by dashes.")] = False
    pod_label_prefix: Annotated[
        str,
        msgspec.Meta(pattern=r"^(_?[a-zA-Z][a-zA-Z0-9_]*)?$"),
        Doc("Prefix of the names of pod labels; may be empty."),
    ] = "label_"
    sharing: Annotated[
        Sharing,
        Doc(
            "Readings of a device with several holders: info shows each once without a container, "
            "copies shows one for each holder and replica (label vgpu), and utilisation and used "
            "memory of each holder's own processes; claims shows one for each holder only of "
            "devices that a ResourceClaim was allocated."
        ),
    ] = "info"
    mig_readings: Annotated[
        Literal["auto", "gpu", "instances", "both"],
        Doc(
            "Where readings are shown that only the whole GPU has, such as power, if the GPU has "
            "MIG instances: once for the GPU (gpu), for each of its instances with the holder of "
            "the instance (instances), or both. auto is both with sharing: copies, else gpu."
        ),
    ] = "auto"
