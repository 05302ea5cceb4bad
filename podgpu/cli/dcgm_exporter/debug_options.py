"""dcgm-exporter's options about itself and its DCGM, none of which has anything to set here."""

from typing import Final

from podgpu.cli.dcgm_exporter.option import Fate, Option, Type

_NO_DCGM: Final = "There is no DCGM in podgpu; its own log is set by --debug and --log-format."
_NO_DUMPS: Final = "`podgpu record` writes what the sources say into a file that can be played."

OPTIONS: Final = (
    Option(
        "enable-dcgm-log",
        "",
        "DCGM_EXPORTER_ENABLE_DCGM_LOG",
        Type.SWITCH,
        False,
        Fate.NOT_NEEDED,
        "",
        _NO_DCGM,
    ),
    Option(
        "dcgm-log-level",
        "",
        "DCGM_EXPORTER_DCGM_LOG_LEVEL",
        Type.TEXT,
        "NONE",
        Fate.NOT_NEEDED,
        "",
        _NO_DCGM,
    ),
    Option(
        "disable-startup-validate",
        "",
        "DISABLE_STARTUP_VALIDATE",
        Type.SWITCH,
        False,
        Fate.NOT_NEEDED,
        "",
        "podgpu starts without a driver and waits for it.",
    ),
    Option(
        "enable-pprof",
        "",
        "DCGM_EXPORTER_ENABLE_PPROF",
        Type.SWITCH,
        False,
        Fate.NOT_NEEDED,
        "",
        "podgpu is no Go program.",
    ),
    Option(
        "dump-enabled",
        "",
        "DCGM_EXPORTER_DUMP_ENABLED",
        Type.SWITCH,
        False,
        Fate.NOT_NEEDED,
        "",
        _NO_DUMPS,
    ),
    Option(
        "dump-directory",
        "",
        "DCGM_EXPORTER_DUMP_DIRECTORY",
        Type.TEXT,
        "/tmp/dcgm-exporter-debug",  # noqa: S108 - dcgm-exporter's own; nothing is written there
        Fate.NOT_NEEDED,
        "",
        _NO_DUMPS,
    ),
    Option(
        "dump-retention",
        "",
        "DCGM_EXPORTER_DUMP_RETENTION",
        Type.NUMBER,
        24,
        Fate.NOT_NEEDED,
        "",
        _NO_DUMPS,
    ),
    Option(
        "dump-compression",
        "",
        "DCGM_EXPORTER_DUMP_COMPRESSION",
        Type.SWITCH,
        True,
        Fate.NOT_NEEDED,
        "",
        _NO_DUMPS,
    ),
)
