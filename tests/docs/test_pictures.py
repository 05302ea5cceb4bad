"""The pictures of the README show what podgpu prints for its demo.

Compared is what the pictures are made from: HTML and text, never pixels.
"""

import os

import pytest

from tests.docs.demo_scene import scene
from tests.docs.pictures import FOLDER, svg, texts


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_pictures_are_made_from_what_the_demo_shows() -> None:
    """`make pictures` writes all, `PODGPU_WRITE_GOLDEN=1` all but the picture of the page."""
    expected = texts(scene())
    if os.environ.get("PODGPU_WRITE_GOLDEN"):
        for name, text in expected.items():
            (FOLDER / name).write_text(text, encoding="utf-8")
    for name, text in expected.items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, f"{name}: run make pictures"


def test_a_picture_of_text_has_its_attributes_and_columns() -> None:
    made = svg("a  \x1b[1;31mb & c\x1b[0m\n\nd", "Title <1>")
    assert "<title>Title &lt;1&gt;</title>" in made
    assert 'class="b r">b &amp; c</tspan>' in made
    assert made.count("<text ") == 2, "an empty line has no element"
    assert "\x1b" not in made
