"""Whose provider state a request may show: that of the same model at the same endpoint, behind an equal start (M4, wire 1).

Some models sign what they thought together with everything before it, and refuse it behind anything else. For their families a
run whose instructions or tools are not those of the run before starts without that state, by a record that says so.
"""

from collections.abc import Sequence

from msgspec import json

from semel.core.records import Config
from semel.core.state import CacheProof, Session
from semel.core.values import Bundle, ToolSpec, digest_text

OTHER_MODEL, OTHER_INSTRUCTIONS, OTHER_TOOLS, OTHER_VIEW = "model", "instructions", "tools", "view"
STATE_REFUSED, STATE_LEFT_OUT = "provider_state", "provider_state_left_out"
_BREAKS = {
    OTHER_MODEL: "another model",
    OTHER_INSTRUCTIONS: "other instructions",
    OTHER_TOOLS: "other tools",
    OTHER_VIEW: "another view of what was said",
    STATE_REFUSED: "provider state that was refused and is left out",
    STATE_LEFT_OUT: "provider state that is left out",
}
BOUND_TO_PREFIX = frozenset({"anthropic_messages", "bedrock_converse"})


def target_of(bundle: Bundle) -> str:
    """The model that is asked, and where."""
    return "\n".join((bundle.family, bundle.endpoint, bundle.model))


def prefix_of(instructions: str, tools: Sequence[ToolSpec], config: Config) -> str:
    """What a model sees before the first message: instructions, tools as they are rendered, the schema of a typed output.

    What only recovery knows of a tool (its effect, its timeout) stands in no request, so it changes nothing here.
    """
    shown = json.encode([(tool.name, tool.description, tool.parameters) for tool in tools]).decode()
    schema = "" if config.output_schema is None else digest_text(config.output_schema)
    return "\n".join((config.bundle.family, digest_text(instructions), digest_text(shown), schema))


def broken_by(state: Session) -> tuple[str, ...]:
    """Why no cache can serve the newest request whole: what changed since the last request that was answered."""
    found = _changed_start(state)
    found += tuple(what for what in dict.fromkeys(state.changed) if what != STATE_LEFT_OUT)
    return found or state.changed[:1]  # state that is left out without any other reason is the reason


def _changed_start(state: Session) -> tuple[str, ...]:
    if state.answered is None:
        return ()
    target, prefix = state.answered
    if target != state.target:
        return (OTHER_MODEL,)
    _, instructions, *tools = prefix.split("\n")
    _, now, *tools_now = state.prefix.split("\n")
    found = (OTHER_INSTRUCTIONS,) if instructions != now else ()
    return (*found, OTHER_TOOLS) if tools != tools_now else found


def cache_words(proof: CacheProof) -> str:
    """What a resume, or a later run, saved; or what broke the prefix."""
    read = "cache reads were not reported" if proof.read is None else f"{proof.read:,} tokens read from cache"
    if not proof.broken:
        return f"prefix identical, {read}"
    return f"prefix broken by {' and '.join(_BREAKS.get(what, what) for what in proof.broken)}, {read}"


def is_bound(family: str) -> bool:
    """Whether models of the family bind their state to what stands before it."""
    return family in BOUND_TO_PREFIX
