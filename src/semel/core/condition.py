"""The conditions of rules: a small language over the arguments of a call, such as `cents > 5000 and currency != "EUR"`. Pure.

    condition  = all { "or" all }          all  = one { "and" one }          one = [ "not" ] ( "(" condition ")" | comparison )
    comparison = value [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not in" | "like" | "not like" ) value ]
    value      = number | text in quotes | true | false | null | name { "." name } | "[" value { "," value } "]"

It is total: it has no loops, calls or arithmetic, its length and depth are bounded, and a condition that is neither true nor
false for some arguments says so (`CannotTell`), which is not a no (CON4). An argument that is not there is null.
"""

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from semel.core.values import JSON, printable

CONDITION_CHARS_MOST = 2000
DEPTH_MOST = 32
_SHOWN_CHARS_MOST = 60
_TOKEN = re.compile(
    r"\s*(?:(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<text>\"[^\"\\]*\"|'[^'\\]*')|(?P<sign>==|!=|<=|>=|[<>()\[\],.]))",
    re.ASCII,
)
_ORDER: dict[str, Callable[[JSON, JSON], bool]] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_WORDS = frozenset({"and", "or", "not", "in", "like", "true", "false", "null"})
_CONSTANTS: dict[str, JSON] = {"true": True, "false": False, "null": None}


class BadCondition(ValueError):
    """A text that is no condition; its message says where, and what is allowed there."""


class CannotTell(ValueError):
    """These arguments make the condition neither true nor false; its message says why."""


@dataclass(frozen=True)
class Constant:
    """A value that stands in the condition."""

    value: JSON


@dataclass(frozen=True)
class Argument:
    """An argument of the call, or a part of one."""

    path: tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """A list of values."""

    items: "tuple[Node, ...]"


@dataclass(frozen=True)
class Compared:
    """Two values and what is asked of them; `sign` is without its `not`."""

    left: "Node"
    sign: str
    right: "Node"
    negated: bool = False


@dataclass(frozen=True)
class Joined:
    """Parts that all hold, or of which one does; read from left to right, and no further than needed."""

    word: str
    parts: "tuple[Node, ...]"


@dataclass(frozen=True)
class Negated:
    """The contrary."""

    part: "Node"


Node = Constant | Argument | Listed | Compared | Joined | Negated


def parse_condition(text: str) -> Node:
    """The condition that a text is. Raises BadCondition."""
    if len(text) > CONDITION_CHARS_MOST:
        raise BadCondition(f"it has {len(text)} characters, the most is {CONDITION_CHARS_MOST}")
    return _Reader(text).whole()


def holds(node: Node, arguments: dict[str, JSON]) -> bool:
    """Whether it is true of these arguments. Raises CannotTell."""
    match node:
        case Joined(word="and", parts=parts):
            return all(holds(part, arguments) for part in parts)
        case Joined(parts=parts):
            return any(holds(part, arguments) for part in parts)
        case Negated(part=part):
            return not holds(part, arguments)
        case Compared():
            return _compare(node, arguments)
        case _:
            value = _value(node, arguments)
            if not isinstance(value, bool):
                raise CannotTell(f"{_named(node)} is {_shown(value)}, which is neither true nor false")
            return value


def arguments_of(node: Node) -> Iterator[Argument]:
    """Every argument that the condition speaks of."""
    match node:
        case Argument():
            yield node
        case Compared(left=left, right=right):
            yield from arguments_of(left)
            yield from arguments_of(right)
        case Negated(part=part):
            yield from arguments_of(part)
        case Joined(parts=parts) | Listed(items=parts):
            for part in parts:
                yield from arguments_of(part)
        case Constant():
            return


def _compare(node: Compared, arguments: dict[str, JSON]) -> bool:
    left, right = _value(node.left, arguments), _value(node.right, arguments)
    if node.sign == "==":
        found = equal(left, right)
    elif node.sign == "in":
        found = _is_in(node, left, right)
    elif node.sign == "like":
        if not (isinstance(left, str) and isinstance(right, str)):
            raise CannotTell(f"{_named(node.left)} is {_shown(left)}, and `like` compares a text with a pattern")
        found = like(left, right)
    else:
        if not (_both(left, right, (int, float)) or _both(left, right, (str,))):
            raise CannotTell(f"{_named(node.left)} is {_shown(left)}, and {_shown(right)} is neither below nor above it")
        found = _ORDER[node.sign](left, right)
    return found is not node.negated


def _is_in(node: Compared, left: JSON, right: JSON) -> bool:
    if isinstance(right, list):
        return any(equal(left, item) for item in right)
    if isinstance(right, str) and isinstance(left, str):
        return left in right
    raise CannotTell(f"{_named(node.right)} is {_shown(right)}, in which {_shown(left)} cannot be looked for")


def equal(one: JSON, other: JSON) -> bool:
    """Whether two JSON values are the same; 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[key]) for key, value in one.items())
    return bool(one == other)


def like(text: str, pattern: str) -> bool:
    """Whether a text has the form of a pattern, in which `*` stands for any characters and `?` for one. Case matters.

    It takes at most as many steps as the product of both lengths, whatever they are.
    """
    at, behind, star, resume = 0, 0, -1, 0
    while at < len(text):
        if behind < len(pattern) and pattern[behind] == "*":
            star, resume = behind, at
            behind += 1
        elif behind < len(pattern) and pattern[behind] in ("?", text[at]):
            at, behind = at + 1, behind + 1
        elif star >= 0:
            resume += 1
            at, behind = resume, star + 1
        else:
            return False
    return not pattern[behind:].strip("*")


def _both(left: JSON, right: JSON, kinds: tuple[type, ...]) -> bool:
    return all(isinstance(value, kinds) and not isinstance(value, bool) for value in (left, right))


def _value(node: Node, arguments: dict[str, JSON]) -> JSON:
    match node:
        case Constant(value=value):
            return value
        case Listed(items=items):
            return [_value(item, arguments) for item in items]
        case Argument(path=path):
            found: JSON = arguments
            for name in path:
                found = found.get(name) if isinstance(found, dict) else None
            return found
        case _:
            return holds(node, arguments)


def _named(node: Node) -> str:
    return ".".join(node.path) if isinstance(node, Argument) else "a part of it"


def _shown(value: JSON) -> str:
    """A value for a message: its kind, and its text where that is short and plain."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return printable(str(value), limit=_SHOWN_CHARS_MOST)
    return "a text" if isinstance(value, str) else "a list" if isinstance(value, list) else "an object"


class _Reader:
    """Reads one text, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[str, str, int]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                start = at + len(text[at:]) - len(text[at:].lstrip())
                raise BadCondition(
                    f"at character {start + 1}: {printable(text[start : start + 20], limit=20)!r} is not understood"
                )
            kind = str(match.lastgroup)
            self._tokens.append((kind, match[kind], match.start(kind)))
            at = match.end()
        self._at = 0

    def whole(self) -> Node:
        node = self._any(0)
        if self._at < len(self._tokens):
            raise self._wrong("the end, `and`, or `or`; to compare more than two values, join the parts")
        return node

    def _any(self, depth: int) -> Node:
        return self._joined("or", lambda: self._joined("and", lambda: self._one(depth)))

    def _joined(self, word: str, read: Callable[[], Node]) -> Node:
        parts = [read()]
        while self._take(word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _one(self, depth: int) -> Node:
        if depth >= DEPTH_MOST:
            raise BadCondition(f"it is nested deeper than {DEPTH_MOST} levels")
        if self._take("not"):
            return Negated(self._one(depth + 1))
        if self._take("("):
            inner = self._any(depth + 1)
            self._expect(")")
            return inner
        left = self._operand(depth)
        negated = self._take("not")
        for sign in ("in", "like") if negated else ("==", "!=", "<=", ">=", "<", ">", "in", "like"):
            if self._take(sign):
                right = self._operand(depth)
                return Compared(left, "==" if sign == "!=" else sign, right, negated or sign == "!=")
        if negated:
            raise self._wrong("`in` or `like`")
        return left

    def _operand(self, depth: int) -> Node:
        if depth >= DEPTH_MOST:
            raise BadCondition(f"it is nested deeper than {DEPTH_MOST} levels")
        kind, token, _ = self._peek()
        if kind == "number":
            self._at += 1
            return Constant(float(token) if re.search(r"[.eE]", token) else int(token))
        if kind == "text":
            self._at += 1
            return Constant(token[1:-1])
        if kind == "name" and token in _CONSTANTS:
            self._at += 1
            return Constant(_CONSTANTS[token])
        if self._take("["):
            return self._list(depth)
        return Argument(self._path())

    def _list(self, depth: int) -> Listed:
        items: list[Node] = []
        while not self._take("]"):
            if items:
                self._expect(",")
            items.append(self._operand(depth + 1))
        return Listed(tuple(items))

    def _path(self) -> tuple[str, ...]:
        names = [self._name()]
        while self._take("."):
            names.append(self._name())
        return tuple(names)

    def _name(self) -> str:
        kind, token, _ = self._peek()
        if kind != "name" or token in _WORDS:
            raise self._wrong("the name of an argument, or a value (text stands in quotes)")
        self._at += 1
        return token

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "", len(self._text))

    def _take(self, token: str) -> bool:
        kind, found, _ = self._peek()
        if kind in ("name", "sign") and found == token:
            self._at += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise self._wrong(f"`{token}`")

    def _wrong(self, expected: str) -> BadCondition:
        _, found, place = self._peek()
        what = f"{printable(found, limit=20)!r} stands" if found else "it ends"
        return BadCondition(f"at character {place + 1}: {what} where there should be {expected}")
