"""Import every module of podgpu as the first of its packages, in one process.

    python -W error -m tests.support.first_imports MODULE...

Before each import, all modules are removed that the imported one does not import, directly or
indirectly. Those that stay are checked by the same rule, so they are the same as in a new process.
Thus a module that needs another module and does not import it raises an error.
"""

import builtins
import importlib
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import ModuleType

Imports = dict[str, set[str]]


def parents(name: str) -> list[str]:
    """Return the packages that contain a module; Python imports them before it."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def direct_imports(modules: Sequence[str]) -> Imports:
    """Import all modules; return which ones each of them imports while it is executed."""
    known, imports = set(modules), defaultdict[str, set[str]](set)
    usual = builtins.__import__

    def record(
        name: str,
        caller: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        names: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if caller and sys._getframe(1).f_code.co_name == "<module>":
            imported = {name, *parents(name), *(f"{name}.{each}" for each in names or ())}
            imports[str(caller["__name__"])] |= imported & known
        return usual(name, caller, local, names or (), level)

    builtins.__import__ = record  # type: ignore[assignment]  # names of its arguments
    try:
        for module in modules:
            importlib.import_module(module)
    finally:
        builtins.__import__ = usual
    return {module: imports[module] | set(parents(module)) for module in modules}


def all_imports(imports: Imports) -> Imports:
    """Return the direct and indirect imports of each module, with itself if they are a cycle."""
    found = {}
    for module, direct in imports.items():
        reached: set[str] = set()
        waiting = set(direct)
        while waiting:
            each = waiting.pop()
            reached.add(each)
            waiting |= imports[each] - reached
        found[module] = reached
    return found


def remove(module: str) -> None:
    """Remove a module, and its name in its package."""
    del sys.modules[module]
    package, _, name = module.rpartition(".")
    if package in sys.modules:
        vars(sys.modules[package]).pop(name, None)


def in_short_order(needed: Imports) -> list[str]:
    """Return the modules in an order in which few modules are imported again.

    Each one comes after the largest of those that it imports, and before others that do not
    import that one.
    """

    def path(module: str) -> tuple[str, ...]:
        before = [each for each in needed[module] if module not in needed[each]]
        if not before:
            return (module,)
        return (*path(max(before, key=lambda each: (len(needed[each]), each))), module)

    return sorted(needed, key=path)


def main(modules: Sequence[str]) -> None:
    """Import each module first; raise its error if it cannot be."""
    needed = all_imports(direct_imports(modules))
    for module in in_short_order(needed):
        for loaded in needed.keys() & sys.modules.keys():
            # A module that imports this one would import it first.
            if loaded not in needed[module] or module in needed[loaded]:
                remove(loaded)
        importlib.import_module(module)


if __name__ == "__main__":
    main(sys.argv[1:])
