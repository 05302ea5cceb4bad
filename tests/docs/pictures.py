"""Make the pictures of the README: `make pictures`. The page needs Chromium, and pngquant if there.

The pictures are made from files next to them, which a test compares with the demo: the page's HTML,
and the text of `podgpu top` and `podgpu usage` with the attributes of a terminal.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from tests.docs.demo_scene import Scene, scene

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
WIDTH, HEIGHT = 1100, 1215
"""Size of the picture of the page in pixels: its first part."""

_CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
_SIZE, _ADVANCE, _LINE = 13, 7.83, 17
"""Size of the font, width of a character and height of a line, in pixels."""
_MARGIN: Final = 14
_PART: Final = re.compile(r"\x1b\[([\d;]*)m")
_CLASSES: Final = {
    "1": "b",
    "2": "s",
    "4": "u",
    "31": "r",
    "32": "g",
    "34": "w",
    "35": "m",
    "36": "c",
}
"""Classes of the picture for attributes of a terminal."""

# Colours with a contrast of at least 4.5 on their background, light or dark.
_STYLE: Final = """\
text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1f2328;
white-space:pre}rect{fill:#fff;stroke:#d0d7de}.b{font-weight:700}.s{fill:#59636e}
.u{text-decoration:underline}.r{fill:#b3261e}.g{fill:#1a7f37}.w{fill:#0550ae}.m{fill:#8a3a9b}
.c{fill:#0b6e78}@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#0d1117;stroke:#3d444d}
.s{fill:#9198a1}.r{fill:#ff8a80}.g{fill:#57c26e}.w{fill:#79b8ff}.m{fill:#d8a0e8}.c{fill:#5ec8d4}}"""


def texts(made: Scene) -> dict[str, str]:
    """Return the content of each file that is not a picture of pixels, by name."""
    return {
        "page.html": made.page,
        "top.txt": made.top,
        "top.svg": svg(made.top, "The screen of podgpu top"),
        "usage.txt": made.usage,
        "usage.svg": svg(made.usage, "The output of podgpu usage"),
    }


def svg(text: str, title: str) -> str:
    """Return a picture of a text with the attributes of a terminal."""
    lines = text.rstrip("\n").split("\n")
    columns = max(len(_PART.sub("", line)) for line in lines)
    width = round(columns * _ADVANCE) + 2 * _MARGIN
    height = len(lines) * _LINE + 2 * _MARGIN
    rows = "".join(
        f'<text y="{_MARGIN + number * _LINE + _SIZE}">{"".join(_spans(line))}</text>\n'
        for number, line in enumerate(lines)
        if line
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">\n<title>{escape(title)}</title>\n'
        f'<style>{_STYLE}</style>\n<rect x=".5" y=".5" width="{width - 1}" '
        f'height="{height - 1}" rx="6"/>\n{rows}</svg>\n'
    )


def _spans(line: str) -> Iterator[str]:
    """Yield the parts of a line. Each has its place, so that no font moves the columns."""
    column, codes = 0, ""
    for number, part in enumerate(_PART.split(line)):
        if number % 2:
            codes = "" if part in {"", "0"} else part
            continue
        # Long runs of blanks need no characters.
        for word in re.finditer(r"\S+(?: \S+)*", part):
            x = _MARGIN + (column + word.start()) * _ADVANCE
            length = len(word[0]) * _ADVANCE
            names = " ".join(_CLASSES[code] for code in codes.split(";") if code)
            style = f' class="{names}"' if names else ""
            yield (f'<tspan x="{x:.1f}" textLength="{length:.1f}"{style}>{escape(word[0])}</tspan>')
        column += len(part)


def png(page: Path, target: Path) -> None:
    """Write the first part of a page as a picture, in the light colours.

    Raises:
        RuntimeError: Chromium is not installed, or fails.
    """
    program = next((each for each in _CHROMIUM if shutil.which(each)), None)
    if program is None:
        raise RuntimeError("Chromium is not installed: apt-get install chromium")
    subprocess.run(
        [
            *(program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={target}", page.as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    if shutil.which("pngquant"):
        words = ("--force", "--skip-if-larger", "--ext", ".png", "128")
        subprocess.run(["pngquant", *words, str(target)], check=False)


def main() -> int:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts(scene()).items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    try:
        png(FOLDER / "page.html", FOLDER / "page.png")
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
