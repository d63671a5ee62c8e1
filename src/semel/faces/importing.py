"""Objects by their reference, `module:name`, as agent files and `--agent` give it."""

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from semel.errors import BadAgent

REFERENCE = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


def import_named(reference: str, directory: Path) -> Any:
    """The object behind `module:name`; `directory` is searched first. Raises BadAgent, whatever the module raises."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise BadAgent(f"{reference!r} is no reference; write module:name, such as invoices:agent")
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
    try:
        module = import_module(match["module"])
    except Exception as error:  # a user's module is foreign code, and may raise anything
        raise BadAgent(f"the module {match['module']} cannot be imported: {type(error).__name__}: {error}") from error
    try:
        return getattr(module, match["name"])
    except AttributeError:
        raise BadAgent(f"the module {match['module']} has no {match['name']!r}") from None
