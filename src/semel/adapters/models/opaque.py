"""Provider state beside the blocks that it belongs to, and how it is found again (wire 0.2, M1, M4).

A block of its own is echoed where it stands. State *of* a text or a call (a signature, the server's id, a phase) stands directly
behind it. The prompt holds only what this very endpoint and model said: whoever builds the prompt drops the rest, and a family
knows its own formats by name and ignores all others.
"""

import json
from collections.abc import Sequence

import msgspec

from semel.adapters.models.arguments import received
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


def opaque(format_: str, value: JSON, raw: str | None = None) -> Opaque:
    """A block that keeps `value`, by its own text where that is at hand: a number keeps its form, a member may occur twice.

    Raises Undecodable for what could not be sent back, and would spoil each later request.
    """
    try:
        data = compact(value)
    except (ValueError, RecursionError):  # a number that is none, or more levels than can be written
        raise Undecodable(
            f"the answer holds state of its provider ({format_}) that is not JSON", failure=FailureClass.MALFORMED_OUTPUT
        ) from None
    return Opaque(format=format_, data=data if raw is None else received(raw))


def raw_member(data: str, name: str) -> str | None:
    """The text of a member of the object that `data` is; None where the parser that tells it is stricter than ours."""
    try:
        found = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get(name)
    except msgspec.DecodeError:
        return None
    return None if found is None else bytes(found).decode()
