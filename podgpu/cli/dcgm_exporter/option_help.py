"""Describe the options in the output of `--help` and in the documentation."""

from collections.abc import Iterator

from podgpu.cli.dcgm_exporter.option import Option
from podgpu.cli.dcgm_exporter.option_table import OPTIONS

_HEAD = """\
usage: podgpu dcgm-exporter [OPTION ...]

Run the daemon with dcgm-exporter's options. Options have precedence over environment variables,
these over --config-file, and this over defaults. Write switches as -k or -k=false. Separate the
items of a list with commas, or give the option several times.
"""


def help_text() -> str:
    """Return the text that `podgpu dcgm-exporter --help` prints."""
    return "\n".join([_HEAD, *(line for option in OPTIONS for line in _entry(option))])


def _entry(option: Option) -> Iterator[str]:
    default = f" (default {option.written_default})" if option.written_default else ""
    yield f"  {', '.join(option.flags)}  {option.type.value}{default}"
    if option.variable:
        yield f"      {option.variable}"
    key = f", {option.config_key}" if option.config_key else ""
    yield f"      {option.support.value}{key}: {option.why}"


def table_row(option: Option) -> str:
    """Return the row of the option in the table of docs/migrating.md."""
    flags = ", ".join(f"`{flag}`" for flag in reversed(option.flags))
    variable = f"`{option.variable}`" if option.variable else ""
    default = f"`{option.written_default}`" if option.written_default else ""
    key = f"`{option.config_key}`" if option.config_key else ""
    return f"| {flags} | {variable} | {default} | {option.support.value} | {key} | {option.why} |"
