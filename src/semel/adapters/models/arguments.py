"""The arguments that a model wrote: how they are kept, and whether they can be sent back to a server as they are (B14, B19)."""

import json
import re

from semel.core.values import JSON, clean_text

_NESTED_MAX = 64
_BLANKS = " \t\r\n"
_OUTSIDE, _INSIDE = re.compile(r'["\[\]{}]'), re.compile(r'["\\]')
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair, which is one character
    r"|(?P<lone>\\u(?:[dD][89a-fA-F][0-9a-fA-F]{2}|0000))"
    r"|\\.",
    re.DOTALL,
)


def received(text: str) -> str:
    """The text of a call's arguments as it is kept: its own, but for characters that no JSON may carry on; blank is `{}` (B13).

    Half a surrogate pair and NUL are U+FFFD, also where they are written as an escape, so that what is stored can be sent.
    """
    text = clean_text(text)
    if "\\u" in text:
        text = _ESCAPE.sub(lambda match: "\ufffd" if match["lone"] else match[0], text)
    return text if text.strip() else "{}"


def of_value(value: JSON) -> str:
    """The arguments of a server that sends the object itself instead of its text."""
    return received(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def sendable(text: str) -> str:
    """The text of one JSON object: `text` itself if it is one, else `{}`; the call's own result says what was wrong (B14)."""
    text = received(text).strip(_BLANKS)
    return text if is_json_object(text) else "{}"


def is_json_object(text: str) -> bool:
    """Whether a strict parser reads `text` as one JSON object: no NaN, no lone surrogate, nested 64 deep at most.

    The answer decides bytes of a request, so it depends on nothing but the text: not on the interpreter's limits for digits or
    recursion, nor on a library's version.
    """
    if not text.lstrip(_BLANKS).startswith("{") or _depth(text) > _NESTED_MAX:
        return False
    try:
        value = json.loads(text, parse_int=float, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:  # bad JSON, a constant, a lone surrogate
        return False
    return isinstance(value, dict)


class Pieces:
    """A text that comes in pieces, and whether it is one JSON object by now. To ask behind every piece costs two readings in all.

    What is followed from piece to piece is where the first bracket of the text is closed: before that it is no object yet, and
    with anything but blanks behind it, it never will be.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self._pieces: list[str] = []
        self.clear()

    def clear(self) -> None:
        """Forget all of it."""
        self._pieces.clear()
        self._followed = 0  # how many pieces
        self._depth = self._skipped = 0
        self._in_string = self._begun = self._never = False

    def add(self, piece: str) -> None:
        """One more."""
        self._pieces.append(piece)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self._pieces)

    @property
    def is_json_object(self) -> bool:
        """What `is_json_object` says of the text."""
        for piece in self._pieces[self._followed :]:
            self._follow(piece)
        self._followed = len(self._pieces)
        if self._never or not self._begun or self._depth:
            return False
        self._never = not is_json_object(self.text)
        return not self._never

    def _follow(self, piece: str) -> None:
        if self._never or not piece.strip(_BLANKS):
            self._skipped = 0 if piece else self._skipped
            return
        at, self._skipped = self._skipped, 0
        if not self._begun:
            self._begun = piece.lstrip(_BLANKS).startswith("{")
            self._never = not self._begun
        elif not self._depth:
            self._never = True
        while not self._never and (found := (_INSIDE if self._in_string else _OUTSIDE).search(piece, at)) is not None:
            at = found.end() + (found[0] == "\\")
            if found[0] == '"':
                self._in_string = not self._in_string
            elif found[0] != "\\":
                self._depth += 1 if found[0] in "[{" else -1
                self._never = not self._depth and bool(piece[at:].strip(_BLANKS))
        self._skipped = max(0, at - len(piece))


def _depth(text: str) -> int:
    """How deeply brackets nest outside of strings, at most."""
    depth = deepest = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', text, re.DOTALL):
        if token[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in "]}":
            depth -= 1
    return deepest


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
