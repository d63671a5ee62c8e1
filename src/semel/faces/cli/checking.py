"""How a person finds out what became of a call whose outcome is unknown: by its key, or as its tool declares."""

import json
from pathlib import Path

from semel.core.values import JSON, Frozen
from semel.errors import BadAgent
from semel.faces.agentfile import reconcile_command
from semel.faces.cli.output import one_line
from semel.faces.importing import REFERENCE
from semel.faces.views import InboxItem


class Check(Frozen, frozen=True, kw_only=True):
    """What there is to look with. `key` is the idempotency key that the tool got, so what the outside may know the call by.

    `command` is a line for a shell that asks what became of it, where an agent file that is still there declares one;
    `reconciles` says that its tool could ask, whether or not that can be done from here.
    """

    key: str
    command: str | None
    reconciles: bool

    def as_json(self) -> dict[str, JSON]:
        """As the inbox prints it."""
        return {"key": self.key, "command": self.command, "reconciles": self.reconciles}

    def line(self) -> str:
        """The same in words, without a full stop."""
        look = f"look for its key {self.key} where it acts"
        if self.command is not None:
            asks = self.command if one_line(self.command) == self.command else "the command that `semel inbox --json` has"
            return f"{look}, or ask: {asks} (exit code 0: it happened; 1 without a word on stderr: it never will; else not known)"
        return f"{look}, or as `reconcile` of its tool does" if self.reconciles else look


def check_of(item: InboxItem) -> Check:
    """What there is to look with. Only the file of an agent is read, and nothing of it is run."""
    command = _command(item) if item.call.reconciles else None
    return Check(key=item.call.call_key, command=command, reconciles=item.call.reconciles)


def _command(item: InboxItem) -> str | None:
    source = item.source
    if source is None or REFERENCE.fullmatch(source) or not Path(source).is_file():
        return None
    found = arguments_of(item.call.arguments)
    arguments = found if isinstance(found, dict) else {}
    try:
        return reconcile_command(Path(source), item.call.tool, arguments, item.call.call_key)
    except BadAgent:  # the file is another one by now; the key is still there to look for
        return None


def arguments_of(text: str) -> JSON:
    """What the tool received; a text that is no JSON stays a text."""
    try:
        found: JSON = json.loads(text)
    except ValueError:
        return text
    return found
