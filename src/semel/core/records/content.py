"""Content: what the model sees, or what decides how it sees it. The first of the two families of durable facts (R45).

A piece of content is an *entry*, found by its `entry_id`. Control records carry entries or name them; an id names one content
for ever (K15).
"""

from semel.core.hook_notes import HookNote, HookPhase, ToolOutput
from semel.core.limits import Limits
from semel.core.values import JSON, AssistantMessage, Bundle, Frozen, ToolMessage, ToolSpec, UserMessage

__all__ = [
    "AgentRef",
    "Config",
    "Content",
    "Entry",
    "Failure",
    "HookNote",
    "HookPhase",
    "Instructions",
    "ToolOutput",
    "ToolSet",
]


class Config(Frozen, frozen=True, kw_only=True, tag="config"):
    """What a run is frozen to: its render bundle, limits, and the schema of its typed output (canonical JSON text).

    `render_tags` shows the tags of parts to the model (C49). `provider_text_state`, `reasoning_echo` and `chatgpt_wire` are
    frozen policies of wire families; a run without them renders as before they existed (M3, M17, P36).
    """

    bundle: Bundle
    limits: Limits
    output_schema: str | None = None
    render_tags: bool = False
    provider_text_state: bool = False
    reasoning_echo: str | None = None
    chatgpt_wire: JSON = None


class Instructions(Frozen, frozen=True, kw_only=True, tag="instructions"):
    """The rendered instructions of a run."""

    text: str


class ToolSet(Frozen, frozen=True, kw_only=True, tag="tools"):
    """The tools offered in a run, in the order the model sees them."""

    tools: tuple[ToolSpec, ...]


Content = UserMessage | AssistantMessage | ToolMessage | ToolOutput | Config | Instructions | ToolSet


class Entry(Frozen, frozen=True, kw_only=True):
    """A piece of content under its id."""

    entry_id: str
    content: Content


class AgentRef(Frozen, frozen=True, kw_only=True):
    """Where the agent of a run came from: its name, an absolute path or module:name, and a digest of its definition."""

    name: str
    source: str | None = None
    digest: str | None = None


class Failure(Frozen, frozen=True, kw_only=True):
    """Why a run failed, for people and for status.json. `kind` is `model`, `limit`, `output`, `tool`, `policy` or `semel`.

    `provider_details` is the provider's own typed account, such as which quota is gone (R25).
    """

    kind: str
    code: str
    message: str
    provider: str | None = None
    provider_details: JSON = None
