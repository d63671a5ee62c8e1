"""Provider state beside the blocks that it belongs to, and how it is found again (wire 0.2, M1, M4).

A block of its own is echoed where it stands. State *of* a text or a call (a signature, the server's id, a phase) stands directly
behind it. The prompt holds only what this very endpoint and model said: whoever builds the prompt drops the rest, and a family
knows its own formats by name and ignores all others.
"""

import json
from collections.abc import Sequence

from semel.adapters.models.decoding import Undecodable
from semel.adapters.models.json_text import compact
from semel.core.values import JSON, Block, Frozen, Opaque
from semel.ports.model import FailureClass


class StatePolicies(Frozen, frozen=True, kw_only=True):
    """What a run freezes of how provider state is kept: that of texts (M2), and the form of reasoning that is echoed (M15)."""

    text_state: bool = False
    reasoning_echo: str | None = None


def state_behind(blocks: Sequence[Block], index: int, format_: str) -> dict[str, JSON] | None:
    """The state of the block at `index`; None for a block that another model wrote."""
    behind = blocks[index + 1] if index + 1 < len(blocks) else None
    if not isinstance(behind, Opaque) or behind.format != format_:
        return None
    state = json.loads(behind.data)
    return state if isinstance(state, dict) else {}


def opaque(format_: str, value: JSON) -> Opaque:
    """A block that keeps `value`. Raises Undecodable for one that could not be sent back, and would spoil each later request."""
    try:
        return Opaque(format=format_, data=compact(value))
    except (ValueError, RecursionError):  # a number that is none, or more levels than can be written
        raise Undecodable(
            f"the answer holds state of its provider ({format_}) that is not JSON", failure=FailureClass.MALFORMED_OUTPUT
        ) from None
