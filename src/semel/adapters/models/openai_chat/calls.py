"""Tool calls out of their streamed pieces, for servers that number them well, badly, or not at all (B13, wire 2).

A piece opens a new call when its index is new, or when it carries another id or another name than the call at that index. Without
an index, an id opens a call and a piece without one continues the last. A piece that repeats id and name of a call that is
complete, and is complete itself, is that call sent again. Ids are never invented here; a missing one stays empty.
"""

from dataclasses import dataclass, field

from semel.adapters.models.arguments import Pieces, is_json_object, of_value, received
from semel.adapters.models.opaque import opaque
from semel.adapters.models.openai_chat.options import CALL_EXTRA_FORMAT
from semel.core.values import JSON, Block, ToolCall, clean_text

_KNOWN_MEMBERS = frozenset({"index", "id", "type", "function"})


@dataclass
class _Open:
    """A call that is being assembled."""

    at: int
    id: str
    name: str
    arguments: Pieces = field(default_factory=Pieces)
    extra: dict[str, JSON] = field(default_factory=dict)


class CallAssembler:
    """Collects the pieces of one answer."""

    def __init__(self) -> None:
        """Nothing collected yet."""
        self._calls: list[_Open] = []
        self._at_index: dict[int, _Open] = {}
        self._last_of: dict[str, _Open] = {}  # by id, of those that have one the one opened last

    def __len__(self) -> int:
        """How many calls have been opened."""
        return len(self._calls)

    def add(self, piece: JSON) -> None:
        """Take one element of `delta.tool_calls`; what is not an object is ignored."""
        if not isinstance(piece, dict):
            return
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        call_id, name, arguments = _text(piece.get("id")), _text(function.get("name")), _arguments(function.get("arguments"))
        index = piece.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        call = self._continued(index, call_id, name, arguments)
        if call is None:
            call = _Open(len(self._calls), call_id, name)
            self._calls.append(call)
        elif call_id and call_id == call.id and is_json_object(arguments) and call.arguments.is_json_object:
            call.arguments.clear()  # sent again
        call.id, call.name = call.id or call_id, call.name or name
        call.arguments.add(arguments)
        if self._last_of.setdefault(call.id, call).at < call.at:
            self._last_of[call.id] = call
        call.extra.update({name: value for name, value in piece.items() if name not in _KNOWN_MEMBERS and value is not None})
        if index is not None:
            self._at_index[index] = call

    def blocks(self) -> list[Block]:
        """The calls in the order they were opened, each followed by what else its server attached to it."""
        result: list[Block] = []
        for call in self._calls:
            result.append(ToolCall(id=clean_text(call.id), name=clean_text(call.name), arguments=received(call.arguments.text)))
            if call.extra:
                result.append(opaque(CALL_EXTRA_FORMAT, call.extra))
        return result

    def _continued(self, index: int | None, call_id: str, name: str, arguments: str) -> _Open | None:
        """The call that a piece belongs to; None if it opens one."""
        if index is None:
            call = self._last_of.get(call_id) if call_id else self._calls[-1] if self._calls else None
        else:
            call = self._at_index.get(index)
        if call is None or (call_id and call.id and call_id != call.id) or (name and call.name and name != call.name):
            return None
        if name and not call_id and is_json_object(arguments) and call.arguments.is_json_object:
            return None  # a second whole call of the same tool, from a server without ids
        return call


def _text(value: JSON) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None or isinstance(value, (dict, list, bool)) else str(value)


def _arguments(value: JSON) -> str:
    """The text of one piece; some servers send the object itself instead of its text."""
    if value is None or isinstance(value, str):
        return value or ""
    return of_value(value)
