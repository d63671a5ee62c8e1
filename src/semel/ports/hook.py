"""Hooks of an agent: its own code around a message, an answer and a call (FACT20, A14).

HOOK-1  A hook returns None to leave what it was given as it is, or what is to stand in its place.
HOOK-2  What a hook did is recorded with the content, before anything depends on it; on a resume or a replay it is not asked
        again. Where a process dies before that, nothing had depended on it, and a hook may be asked again.
HOOK-3  Nothing that a hook raises, returns or keeps waiting for gets into the run: a message is not accepted and a call is not
        sent (`pre_tool_unavailable`), a result is not shown, an answer stays as it is.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from semel.core.values import JSON, Frozen


class Refuse(Frozen, frozen=True):
    """Returned by a pre-user or a pre-tool hook: no. `why` is told to the sender, or to the model."""

    why: str


@dataclass(frozen=True, kw_only=True)
class PreUser:
    """What a pre-user hook is given: a message before it is accepted. It returns another text, or Refuse."""

    session: str
    text: str
    context: JSON = None


@dataclass(frozen=True, kw_only=True)
class PostAssistant:
    """What a post-assistant hook is given: a whole answer before it is recorded. It returns another text."""

    session: str
    run_id: str
    step_id: int
    text: str
    tools: tuple[str, ...] = ()
    context: JSON = None


@dataclass(frozen=True, kw_only=True)
class PreTool:
    """What a pre-tool hook is given: a call that fits its schema, before policy and approval.

    It returns other arguments, which have to fit the schema too, or Refuse.
    """

    session: str
    run_id: str
    step_id: int
    ordinal: int
    tool: str
    arguments: dict[str, JSON]
    context: JSON = None


@dataclass(frozen=True, kw_only=True)
class PostTool:
    """What a post-tool hook is given: a known outcome, before the model reads it. It returns another text."""

    session: str
    run_id: str
    step_id: int
    ordinal: int
    tool: str
    arguments: dict[str, JSON]
    text: str
    is_error: bool
    context: JSON = None


Act = Callable[[Any], Awaitable[object]]


@dataclass(frozen=True, kw_only=True)
class NamedHook:
    """A hook and the name that its notes carry. `act` never blocks the event loop."""

    name: str
    act: Act


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The hooks of an agent, each phase in its order."""

    pre_user: tuple[NamedHook, ...] = field(default=())
    post_assistant: tuple[NamedHook, ...] = field(default=())
    pre_tool: tuple[NamedHook, ...] = field(default=())
    post_tool: tuple[NamedHook, ...] = field(default=())
