"""The fixed sentences that semel itself says to a model. They are part of a request's bytes: changing one is a format change."""

from semel.core.records import LateKind, Verdict
from semel.core.values import Part, ToolMessage, UserMessage

SUBMIT_TOOL = "submit_output"
SUBMIT_DESCRIPTION = "Submit the final output. Call it once, when the work is done."
SUBMIT_ACCEPTED = "Accepted."
OUTPUT_REMINDER = f"Give the final output by calling {SUBMIT_TOOL}; a plain answer is not enough."
CONTINUE_INPUT = "Continue."
NO_OUTPUT = "(no output)"
EMPTY_MESSAGE = "(empty message)"
HOOK_HID_RESULT = "The call ran, but its result cannot be shown. A check behind it failed:"
DEFERRED = "Accepted. The result comes later; go on without it."

_LATE: dict[LateKind, str] = {
    "delivered": "has arrived",
    "not_started": "will not come: it was not started",
    "expired": "will not come: it expired",
    "reduced": "has arrived in part",
}

_VERDICTS: dict[Verdict, str] = {
    "happened": "This call took effect; a person has confirmed it.",
    "did_not_happen": "This call did not take effect; a person has confirmed it.",
    "abandoned": "Whether this call took effect was not found out, and nobody will look further. Do not assume either.",
}


def budget_notice(told: str) -> str:
    """What the model reads when a budget of its run runs low."""
    return f"Notice: {told}. Bring the work to an end in time."


def verdict_text(verdict: Verdict, output: str | None) -> str:
    """What the model reads as the result of a call that a person resolved."""
    return output if output is not None and verdict == "happened" else _VERDICTS[verdict]


def verdict_result(tool_call_id: str, verdict: Verdict, output: str | None) -> ToolMessage:
    """The verdict in the place of the unknown result; an error unless it happened."""
    return ToolMessage(tool_call_id=tool_call_id, text=verdict_text(verdict, output), is_error=verdict != "happened")


def verdict_message(tool: str, arguments: str, verdict: Verdict, output: str | None) -> UserMessage:
    """The verdict as a message of its own, where a request has already shown the call as unknown."""
    return UserMessage(
        text=f"About the earlier call {tool}({arguments}), whose outcome was unknown: {verdict_text(verdict, output)}"
    )


def late_message(tool: str, arguments: str, kind: LateKind, text: str, parts: tuple[Part, ...], *, is_error: bool) -> UserMessage:
    """The real result of a deferred call, as a message of its own (MAP12)."""
    wrong = " with an error" if is_error and kind == "delivered" else ""
    said = f": {text}" if text.strip() else "."
    return UserMessage(text=f"The result of the earlier call {tool}({arguments}) {_LATE[kind]}{wrong}{said}", parts=parts)
