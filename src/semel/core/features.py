"""Feature names, and which record needs which: the one table (W14, W37, W40).

A record that needs a feature is written in a ver 3 frame that names it, after the floor of the state root holds the name; a
build without the name refuses the frame before it decodes the content. Everything else keeps ver 1 and its bytes.
"""

from semel.core.records import (
    IndeterminateResolved,
    ModelStepFinished,
    Record,
    ToolBatchStarted,
    ToolCallReturned,
    ToolResult,
)
from semel.core.values import Opaque

EARLY_RETURN = "early-return/v1"
TERMINATE = "terminate/v1"
RESOLUTION = "resolution/v1"
OPENROUTER_REASONING = "openrouter-reasoning/v1"

KNOWN = frozenset({EARLY_RETURN, TERMINATE, RESOLUTION, OPENROUTER_REASONING})
"""What this build reads and writes."""

OPENROUTER_FORMAT = "reasoning_details"


def needed(record: Record) -> tuple[str, ...]:
    """The features that a record needs, sorted; empty for an ungated one."""
    names: set[str] = set()
    match record:
        case ToolCallReturned():
            names.add(EARLY_RETURN)
            if record.terminate:
                names.add(TERMINATE)
        case ToolResult():
            if record.terminate:
                names.add(TERMINATE)
        case IndeterminateResolved():
            names.add(RESOLUTION)
        case ModelStepFinished():
            content = record.assistant_message.content
            blocks = getattr(content, "blocks", ())
            if any(isinstance(block, Opaque) and block.format == OPENROUTER_FORMAT for block in blocks):
                names.add(OPENROUTER_REASONING)
        case _:
            pass
    return tuple(sorted(names))


def foreseen(record: Record) -> tuple[str, ...]:
    """What later records may need because of this one: a call of a batch can come back before the others."""
    several = isinstance(record, ToolBatchStarted) and sum(call.refused is None for call in record.planned_calls) > 1
    return (EARLY_RETURN,) if several else ()
