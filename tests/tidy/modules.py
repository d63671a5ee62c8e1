"""Which module of semel names which, read from the texts: imports anywhere, and dotted names that lazy tables hold as strings."""

import ast
from collections.abc import Iterable, Mapping

from tests.tidy.rules import Source, imported_names


def module_name(path: str) -> str:
    """`src/semel/core/frame.py` is semel.core.frame, a package is its own name."""
    return path.removeprefix("src/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def named_modules(text: str) -> set[str]:
    """Every dotted name that a text imports, or holds in a string such as "semel.faces.cli.run:command"."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        names.update(imported_names(node))
        if isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("semel."):
            names.add(node.value.partition(":")[0])
    return names


def is_empty(text: str) -> bool:
    """Whether a module is only its docstring, as a package's `__init__` is."""
    return all(isinstance(node, ast.Expr) for node in ast.parse(text).body)


def unnamed_modules(sources: Iterable[Source], roots: Iterable[str]) -> list[str]:
    """Modules with content that no other module names and that are no root; a root ending in a dot covers a package."""
    texts: Mapping[str, str] = {module_name(source.path): source.text for source in sources}
    named = {name: named_modules(text) for name, text in texts.items()}
    covered = tuple(root for root in roots if root.endswith("."))
    return sorted(
        name
        for name, text in texts.items()
        if not is_empty(text)
        and name not in roots
        and not name.startswith(covered)
        and not any(name in others for other, others in named.items() if other != name)
    )
