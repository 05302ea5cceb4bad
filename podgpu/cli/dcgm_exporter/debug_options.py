"""dcgm-exporter's options for debugging and for DCGM. None of them has an effect in podgpu."""

from typing import Final

from podgpu.cli.dcgm_exporter.option import Option, Support, Type

_NO_DCGM: Final = "podgpu does not run DCGM; --debug and --log-format configure podgpu's own log."
_NO_DUMPS: Final = "`podgpu record` writes the events of the sources to a file, for replay."

OPTIONS: Final = (
    Option(
        "enable-dcgm-log",
        "",
        "DCGM_EXPORTER_ENABLE_DCGM_LOG",
        Type.SWITCH,
        False,
        Support.NOT_NEEDED,
        "",
        _NO_DCGM,
    ),
    Option(
        "dcgm-log-level",
        "",
        "DCGM_EXPORTER_DCGM_LOG_LEVEL",
        Type.TEXT,
        "NONE",
        Support.NOT_NEEDED,
        "",
        _NO_DCGM,
    ),
    Option(
        "disable-startup-validate",
        "",
        "DISABLE_STARTUP_VALIDATE",
        Type.SWITCH,
        False,
        Support.NOT_NEEDED,
        "",
        "podgpu starts without a driver and waits for it.",
    ),
    Option(
        "enable-pprof",
        "",
        "DCGM_EXPORTER_ENABLE_PPROF",
        Type.SWITCH,
        False,
        Support.NOT_NEEDED,
        "",
        "podgpu is not a Go program.",
    ),
    Option(
        "dump-enabled",
        "",
        "DCGM_EXPORTER_DUMP_ENABLED",
        Type.SWITCH,
        False,
        Support.NOT_NEEDED,
        "",
        _NO_DUMPS,
    ),
    Option(
        "dump-directory",
        "",
        "DCGM_EXPORTER_DUMP_DIRECTORY",
        Type.TEXT,
        "/tmp/dcgm-exporter-debug",  # noqa: S108 - dcgm-exporter's default, not used here
        Support.NOT_NEEDED,
        "",
        _NO_DUMPS,
    ),
    Option(
        "dump-retention",
        "",
        "DCGM_EXPORTER_DUMP_RETENTION",
        Type.NUMBER,
        24,
        Support.NOT_NEEDED,
        "",
        _NO_DUMPS,
    ),
    Option(
        "dump-compression",
        "",
        "DCGM_EXPORTER_DUMP_COMPRESSION",
        Type.SWITCH,
        True,
        Support.NOT_NEEDED,
        "",
        _NO_DUMPS,
    ),
)
