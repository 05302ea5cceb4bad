"""Texts of foreign origin, made fit for a terminal, which acts on some characters."""

from pipeline.texts import line


def lines(text: str) -> str:
    """Return a text of several lines without anything that a terminal would act on."""
    # `isprintable` is fast, and nearly always true.
    return "\n".join(
        part if part.isprintable() else line(part, len(part)) for part in text.split("\n")
    )
