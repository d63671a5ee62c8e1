"""Commands that a message names as the next step, so that they can be copied: with the state directory that was given."""

import re
import shlex
from collections.abc import Iterable
from contextvars import ContextVar

from semel import errors

VERDICTS = "where VERDICT is --happened, --did-not-happen or --abandon"
_WITH_STATE = (
    "run|send|resume|ls|show|tail|explain|preview|verify|inbox|resolve|steer|follow-up|retract|cancel|stop|approve|deny|deliver|"
    "doctor|reindex|repair|backup|restore"
)
_NAMED = re.compile(rf"""`semel (?:{_WITH_STATE})\b(?:'[^']*'|"[^"]*"|[^`])*(?=`)""")  # a quoted word may hold the mark itself
_state: ContextVar[str | None] = ContextVar("state", default=None)


def keep_state(directory: str | None) -> None:
    """Remember the `--state` of this command line: what it advises needs it, too."""
    _state.set(directory)


def command(*words: str) -> str:
    """A command of semel within a sentence, which one can paste into a shell."""
    return f"`{plain_command(*words)}`"


def plain_command(*words: str) -> str:
    """The same without the marks that set it off."""
    return f"{errors.command(*words)[1:-1]}{_given_state()}"


def with_state(message: str) -> str:
    """A message whose commands go to the state directory that was given, but for those that name one themselves."""
    return _NAMED.sub(lambda match: match[0] if " --state " in match[0] else match[0] + _given_state(), message)


def resolve_commands(call_keys: Iterable[str]) -> list[str]:
    """The commands that give each call of a session its verdict, and go on behind the last one.

    VERDICT stands for what only a person can say. As it is, such a command is refused: pasting it decides nothing.
    """
    keys = [key[:8] for key in call_keys]
    return [plain_command("resolve", key, "VERDICT", *(["--continue"] if key is keys[-1] else [])) for key in keys]


def _given_state() -> str:
    directory = _state.get()
    return "" if directory is None else f" --state {shlex.quote(directory)}"
