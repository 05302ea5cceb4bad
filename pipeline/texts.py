"""Texts of foreign origin, made fit for messages and logs."""


def line(value: str, longest: int = 300) -> str:
    """Return a foreign text for a message: on one line, cut to a readable length."""
    cut = value if len(value) <= longest else value[:longest] + "..."
    return "".join(c if c.isprintable() else " " for c in cut)
