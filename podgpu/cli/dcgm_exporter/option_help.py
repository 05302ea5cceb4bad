"""The options as a text, for the help and for the documentation."""

from collections.abc import Iterator

from podgpu.cli.dcgm_exporter.option import Option
from podgpu.cli.dcgm_exporter.option_table import OPTIONS

_HEAD = """\
usage: podgpu dcgm-exporter [OPTION ...]

The daemon behind dcgm-exporter's own command line. Options, then environment variables, then
--config-file, then defaults count, in this order. Switches are written -k or -k=false; lists with
commas or by giving the option again.
"""


def help_text() -> str:
    """Return what `podgpu dcgm-exporter --help` prints."""
    return "\n".join([_HEAD, *(line for option in OPTIONS for line in _entry(option))])


def _entry(option: Option) -> Iterator[str]:
    default = f" (default {option.written_default})" if option.written_default else ""
    yield f"  {', '.join(option.flags)}  {option.type.value}{default}"
    if option.variable:
        yield f"      {option.variable}"
    becomes = f", {option.becomes}" if option.becomes else ""
    yield f"      {option.fate.value}{becomes}: {option.why}"


def table_row(option: Option) -> str:
    """Return the option's line of the table in docs/migrating.md."""
    flags = ", ".join(f"`{flag}`" for flag in reversed(option.flags))
    variable = f"`{option.variable}`" if option.variable else ""
    default = f"`{option.written_default}`" if option.written_default else ""
    becomes = f"`{option.becomes}`" if option.becomes else ""
    return f"| {flags} | {variable} | {default} | {option.fate.value} | {becomes} | {option.why} |"
