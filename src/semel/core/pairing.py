"""The one contract for history: supplied, imported, inherited and retained (T7-T12, P5, CON19).

A history is a conversation as a provider would take it: it opens with the user, every call is answered once, directly behind its
answer and in the order of the calls. A call that could not be run (no such tool, arguments that do not parse or fit) admits
only an error; one that could be admits an error or a result. History is no evidence that anything was executed: nothing here
asks where a message comes from.
"""

import enum
from collections.abc import Mapping, Sequence

from semel.core.arguments import check_arguments, parse_arguments
from semel.core.limits import Limits
from semel.core.outcomes import Refusal
from semel.core.values import (
    AssistantMessage,
    Frozen,
    Message,
    Text,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
    clean_text,
    control_free,
    is_idle,
    printable,
)
from semel.errors import BadHistory

RESULT_BYTES_MOST = Limits().result_bytes


class Rule(enum.StrEnum):
    """The rules, each of which a refused history is refused by."""

    OPENS_WITH_USER = "opens_with_user"
    BLANK_TEXT = "blank_text"
    UNCLEAN_TEXT = "unclean_text"
    EMPTY_ANSWER = "empty_answer"
    ANSWER_AFTER_ANSWER = "answer_after_answer"
    CALL_WITHOUT_ID = "call_without_id"
    REPEATED_CALL_ID = "repeated_call_id"
    CALL_WITHOUT_RESULT = "call_without_result"
    RESULT_WITHOUT_CALL = "result_without_call"
    SECOND_RESULT = "second_result"
    RESULT_OUT_OF_ORDER = "result_out_of_order"
    SUCCESS_OF_REFUSED_CALL = "success_of_refused_call"
    ERROR_SHAPE = "error_shape"
    RESULT_SHAPE = "result_shape"


class Fault(Frozen, frozen=True, kw_only=True):
    """Where a history breaks which rule. `at` counts messages from 0."""

    at: int
    rule: Rule
    detail: str

    def __str__(self) -> str:
        """One line, with the place as people count."""
        return f"message {self.at + 1}: {self.rule}: {self.detail}"


def check_history(messages: Sequence[Message], *, tools: Mapping[str, ToolSpec] | None = None) -> None:
    """Raise BadHistory, which names the place and the rule, unless the history keeps the contract."""
    fault = fault_of(messages, tools=tools)
    if fault is not None:
        raise BadHistory(str(fault))


def fault_of(
    messages: Sequence[Message],
    *,
    tools: Mapping[str, ToolSpec] | None = None,
    opens: bool = True,
    result_bytes: int = RESULT_BYTES_MOST,
) -> Fault | None:
    """The first fault, None if the history keeps the contract.

    `tools` binds the calls: a call of a tool that is not among them could not be run. None leaves binding open, for a history
    whose tools are gone (B17). `opens` False is for a piece that stands behind other messages.
    """
    return _Checker(tools, result_bytes).check(messages, opens=opens)


class _Checker:
    """One pass over a history. `open` are the calls of the last answer that have no result yet, in order."""

    def __init__(self, tools: Mapping[str, ToolSpec] | None, result_bytes: int) -> None:
        self._tools = tools
        self._result_bytes = result_bytes
        self._seen: set[str] = set()
        self._open: list[ToolCall] = []

    def check(self, messages: Sequence[Message], *, opens: bool) -> Fault | None:
        before: Message | None = None
        for at, message in enumerate(messages):
            if before is None and opens and not isinstance(message, UserMessage):
                return Fault(at=at, rule=Rule.OPENS_WITH_USER, detail="a history opens with a message of the user")
            fault = self._message(at, message, before)
            if fault is not None:
                return fault
            before = message
        return self._unanswered(len(messages))

    def _message(self, at: int, message: Message, before: Message | None) -> Fault | None:
        if isinstance(message, ToolMessage):
            return self._result(at, message)
        missing = self._unanswered(at)
        if missing is not None:
            return missing
        if isinstance(message, UserMessage):
            return _user(at, message)
        if isinstance(before, AssistantMessage):
            return Fault(
                at=at, rule=Rule.ANSWER_AFTER_ANSWER, detail="an answer follows an answer; nothing was said between them"
            )
        return self._answer(at, message)

    def _unanswered(self, at: int) -> Fault | None:
        if not self._open:
            return None
        call = self._open[0]
        return Fault(
            at=at, rule=Rule.CALL_WITHOUT_RESULT, detail=f"call {_name(call.id)} of {_name(call.name)} has no result here"
        )

    def _answer(self, at: int, message: AssistantMessage) -> Fault | None:
        if not (message.calls or message.parts or message.text.strip()):
            return Fault(at=at, rule=Rule.EMPTY_ANSWER, detail="the answer has neither text nor a call")
        for place, block in enumerate(message.blocks):
            if is_idle(message.blocks, place):
                return Fault(at=at, rule=Rule.BLANK_TEXT, detail="a text of the answer is blank")
            if isinstance(block, Text) and clean_text(block.text) != block.text:
                return Fault(at=at, rule=Rule.UNCLEAN_TEXT, detail="a text holds NUL or half a character")
        for call in message.calls:
            if not call.id or not call.name:
                return Fault(at=at, rule=Rule.CALL_WITHOUT_ID, detail="a call has no id or no name")
            if call.id in self._seen:
                return Fault(at=at, rule=Rule.REPEATED_CALL_ID, detail=f"call id {_name(call.id)} was used before")
            self._seen.add(call.id)
            self._open.append(call)
        return None

    def _result(self, at: int, message: ToolMessage) -> Fault | None:
        call = next((call for call in self._open if call.id == message.tool_call_id), None)
        if call is None:
            known = message.tool_call_id in self._seen
            rule = Rule.SECOND_RESULT if known else Rule.RESULT_WITHOUT_CALL
            why = "has its result already" if known else "is not a call of the answer before"
            return Fault(at=at, rule=rule, detail=f"{_name(message.tool_call_id)} {why}")
        if call is not self._open[0]:
            return Fault(
                at=at,
                rule=Rule.RESULT_OUT_OF_ORDER,
                detail=f"the result of {_name(call.id)} stands where {_name(self._open[0].id)} is due",
            )
        del self._open[0]
        fault = (
            _error_fault(at, message, self._result_bytes) if message.is_error else _result_fault(at, message, self._result_bytes)
        )
        if fault is not None or message.is_error:
            return fault
        refusal = self._refusal(call)
        if refusal is None:
            return None
        return Fault(at=at, rule=Rule.SUCCESS_OF_REFUSED_CALL, detail=f"{_name(call.id)} could not be run: {refusal}")

    def _refusal(self, call: ToolCall) -> str | None:
        """Why a call could not have been run with these tools and arguments; None if it could."""
        parsed = parse_arguments(call.arguments)
        if isinstance(parsed, Refusal):
            return parsed.message
        if self._tools is None:
            return None
        spec = self._tools.get(call.name)
        if spec is None:
            return f"there is no tool {_name(call.name)}"
        unfit = check_arguments(spec.parameters, parsed)
        return unfit.message if unfit is not None else None


def _user(at: int, message: UserMessage) -> Fault | None:
    texts = [message.text, *(part.text for part in message.parts if isinstance(part, Text))]
    if not message.parts and not message.text.strip():
        return Fault(at=at, rule=Rule.BLANK_TEXT, detail="a message of the user is blank")
    if any(clean_text(text) != text for text in texts):
        return Fault(at=at, rule=Rule.UNCLEAN_TEXT, detail="a text holds NUL or half a character")
    return None


def _error_fault(at: int, message: ToolMessage, result_bytes: int) -> Fault | None:
    """An error is nonblank, free of control characters but line breaks and tabs, and within the render limit (T10)."""
    if not message.text.strip() and not message.parts:
        return Fault(at=at, rule=Rule.ERROR_SHAPE, detail="an error says nothing")
    if control_free(message.text) != message.text:
        return Fault(at=at, rule=Rule.ERROR_SHAPE, detail="an error holds control characters")
    if len(message.text.encode("utf-8", "surrogatepass")) > result_bytes:
        return Fault(at=at, rule=Rule.ERROR_SHAPE, detail=f"an error is longer than {result_bytes} bytes")
    return None


def _result_fault(at: int, message: ToolMessage, result_bytes: int) -> Fault | None:
    if not message.text.strip() and not message.parts:
        return Fault(at=at, rule=Rule.BLANK_TEXT, detail="a result is blank; say that there was no output")
    if clean_text(message.text) != message.text:
        return Fault(at=at, rule=Rule.UNCLEAN_TEXT, detail="a result holds NUL or half a character")
    if len(message.text.encode()) > result_bytes:
        return Fault(at=at, rule=Rule.RESULT_SHAPE, detail=f"a result is longer than {result_bytes} bytes")
    return None


def _name(text: str) -> str:
    return repr(printable(text, limit=80))
