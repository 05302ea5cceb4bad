"""`python -m tests.support.code_size [FOLDER]`: count the product's code lines and statements.

A code line has a token other than a comment or a docstring. A statement is a statement of Python's
syntax tree other than a docstring. Both are printed for each package, with the number of modules.
"""

import ast
import io
import sys
import tokenize
from pathlib import Path
from typing import Final, NamedTuple

PRODUCT: Final = ("podgpu", "sources", "sinks", "pipeline", "config")

_NO_CODE: Final = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


class Size(NamedTuple):
    """Size of code: its code lines, statements and modules."""

    lines: int = 0
    statements: int = 0
    modules: int = 0


def size_of(source: str) -> Size:
    """Return the size of one module."""
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    texts = [node for node in statements if _is_text(node)]
    prose = {line for node in texts for line in range(node.lineno, (node.end_lineno or 0) + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {
        line
        for token in tokens
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return Size(len(lines - prose), len(statements) - len(texts), 1)


def _is_text(node: ast.stmt) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def sizes(root: Path) -> dict[str, Size]:
    """Return the size of each package of the product below `root`, by its path."""
    result: dict[str, Size] = {}
    for path in sorted(path for top in PRODUCT for path in (root / top).rglob("*.py")):
        folder = path.relative_to(root).parent
        package = "/".join(folder.parts[:2])
        result[package] = _sum(result.get(package, Size()), size_of(path.read_text("utf-8")))
    return result


def _sum(*parts: Size) -> Size:
    return Size(*map(sum, zip(*parts, strict=True)))


def main() -> None:
    """Print the sizes as a table."""
    found = sizes(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print(f"{'package':24} {'lines':>7} {'statements':>10} {'modules':>7}")
    for package, size in [*found.items(), ("all", _sum(*found.values()))]:
        print(f"{package:24} {size.lines:7} {size.statements:10} {size.modules:7}")


if __name__ == "__main__":
    main()
