"""Ids, names and texts as servers take them: functions of the text alone, so that call and result agree (wire 0.5, B10, B24)."""

import hashlib
import re

from semel.core.values import ToolMessage

NO_OUTPUT = "(no output)"
EMPTY_MESSAGE = "(empty message)"
CONTINUE = "Continue."


def wire_id(name: str, allowed: re.Pattern[str]) -> str:
    """An id that a server takes: itself where it fits, else one derived from all of it, so that no two become equal (B10)."""
    return name if allowed.fullmatch(name) else f"call_{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:24]}"


def wire_name(name: str, allowed: re.Pattern[str], *, longest: int) -> str:
    """A tool's name that a server takes: of one that a model invented, every odd character is replaced."""
    if allowed.fullmatch(name):
        return name
    return "".join(c if allowed.fullmatch(c) else "_" for c in name)[:longest] or "unnamed"


def result_text(message: ToolMessage, alone: str = "") -> str:
    """The words of a result; `alone` where it has none because its parts say it all."""
    if message.parts and not message.text.strip() and not message.is_error:
        return alone
    return visible(message.text, NO_OUTPUT)


def visible(text: str, placeholder: str) -> str:
    """The text, or the placeholder where it is blank: no server takes blank text (B24)."""
    return text if text.strip() else placeholder
