"""Parse a page, as a browser or a screen reader does."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

from pipeline.http.builtin_pages import Links
from pipeline.status_page.html.page import DEFAULT_SECONDS, body, footer
from pipeline.status_page.status_document import StatusDocument

VOID_TAGS = frozenset({"meta", "br", "rect"})


@dataclass
class Element:
    """An HTML element with its content."""

    tag: str
    attributes: dict[str, str | None]
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, with runs of white space as one blank."""
        parts = [c if isinstance(c, str) else f" {c.text} " for c in self.children]
        return " ".join("".join(parts).split())

    def text_of(self) -> bytes:
        """Return the element's own text, unchanged."""
        return "".join(c for c in self.children if isinstance(c, str)).encode()

    def all(self, tag: str, **attributes: str) -> list["Element"]:
        """Return the elements of a tag below this one; `class_` selects by one of the classes."""
        class_name = attributes.pop("class_", None)
        found = []
        for child in self.children:
            if isinstance(child, str):
                continue
            classes = (child.attributes.get("class") or "").split()
            if (
                child.tag == tag
                and (class_name is None or class_name in classes)
                and all(child.attributes.get(k) == v for k, v in attributes.items())
            ):
                found.append(child)
            found += (
                child.all(tag, class_=class_name, **attributes)
                if class_name
                else child.all(tag, **attributes)
            )
        return found

    def one(self, tag: str, **attributes: str) -> "Element":
        [found] = self.all(tag, **attributes)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs))
        assert len(element.attributes) == len(attrs), "an attribute is given twice"
        self._open[-1].children.append(element)
        if tag not in VOID_TAGS:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Element(tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag, f"</{tag}> closes a different element"

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)

    def done(self) -> Element:
        assert self._open == [self.root], "an element is not closed"
        return self.root


def read(page: str) -> Element:
    """Return the root of a page, and check that its elements are nested correctly."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.done()


def table(page: Element, kind: str, nth: int = 0) -> list[list[str]]:
    """Return the texts of a table's rows, with the heading first."""
    rows = page.all("table", class_=kind)[nth].all("tr")
    return [[cell.text for cell in row.children if isinstance(cell, Element)] for row in rows]


def page(
    status: StatusDocument, links: Links, seconds: int = DEFAULT_SECONDS, *, debug: bool = False
) -> str:
    """Return the whole page, as the endpoint serves it."""
    return body(status, links, debug=debug) + footer(seconds, debug=debug)
