"""The means of `nvidia-smi pmon`."""

from tests.gpu.owner_programs import pmon

OUTPUT = """\
# gpu         pid   type     sm    mem    enc    dec     fb   ccpm    command
# Idx           #    C/G      %      %      %      %     MB     MB    name
    0        4242     C     30      1      -      -   2560      0    python3
    0        4300     C      -      -      -      -   4600      0    python3
    0        4242     C     40      1      -      -   2562      0    python3
    0           -     -      -      -      -      -      -      -    -
"""


def test_utilisation_that_is_not_shown_is_zero() -> None:
    assert pmon(OUTPUT) == {
        "4242": {"samples": 2, "sm_percent": 35.0, "mib": 2561},
        "4300": {"samples": 1, "sm_percent": 0.0, "mib": 4600},
    }


def test_without_output_there_are_no_processes() -> None:
    assert pmon("") == {}
