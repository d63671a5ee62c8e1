"""Whose provider state a request may show: that of the same model at the same endpoint, behind an equal start (M4, wire 1).

Some models sign what they thought together with everything before it, and refuse it behind anything else. For their families a
run whose instructions or tools are not those of the run before starts without that state, by a record that says so; and so does
one that shows the tags of what was said where the run before did not, or the other way round.
"""

from collections.abc import Sequence

from msgspec import DecodeError, json

from semel.core.records import Config
from semel.core.state import CacheProof, Session
from semel.core.values import JSON, Bundle, ToolSpec, digest_text

OTHER_MODEL, OTHER_INSTRUCTIONS, OTHER_TOOLS, OTHER_VIEW = "model", "instructions", "tools", "view"
OTHER_OPTIONS, OTHER_RENDERER, OTHER_TAGS = "options", "renderer", "tags"
STATE_REFUSED, STATE_LEFT_OUT = "provider_state", "provider_state_left_out"
_BREAKS = {
    OTHER_MODEL: "another model",
    OTHER_INSTRUCTIONS: "other instructions",
    OTHER_TOOLS: "other tools",
    OTHER_OPTIONS: "other options of the model",
    OTHER_RENDERER: "another version of the renderer",
    OTHER_TAGS: "tags that are shown or hidden now",
    OTHER_VIEW: "another view of what was said",
    STATE_REFUSED: "provider state that was refused and is left out",
    STATE_LEFT_OUT: "provider state that is left out",
}
READ_ONLY_DIALECT = frozenset({"auth", "region", "cost_currency", "done_required", "metadata_required"})
"""Members of a dialect that no request body shows: how it is authorised, and how the reply is read."""
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


def manner_of(config: Config) -> str:
    """How a request is written beside what it says: the version of the renderer, and the options that stand in a request."""
    bundle = config.bundle
    policies = (bundle.max_output_tokens, config.provider_text_state, config.reasoning_echo, config.chatgpt_wire)
    options = digest_text(json.encode((_written_options(bundle.options), policies), order="deterministic").decode())
    return f"{bundle.renderer}\n{options}"


def _written_options(text: str) -> JSON:
    try:
        found = json.decode(text)
    except DecodeError:  # of another build, or of a test: then any other text is another manner
        return text
    if not isinstance(found, dict):
        return found
    dialect = found.get("dialect")
    if isinstance(dialect, dict):
        found["dialect"] = {name: value for name, value in dialect.items() if name not in READ_ONLY_DIALECT}
    return {name: value for name, value in found.items() if name != "price" and value != {}}


def shows_tags_alike(state: Session, *, shown: bool) -> bool:
    """Whether a request that shows tags, or none, has the marks that the newest run's requests have on what was said."""
    return shown == (state.tag_family is not None) or not len(state.transcript.tags)


def asked_of(state: Session) -> tuple[str, str, str, str]:
    """What the next request is compared with once this one is answered: target, prefix, manner, and whether tags are shown.

    The last is empty where nothing that was said has a tag, so that showing tags or not makes no difference.
    """
    marks = ("shown" if state.tag_family is not None else "hidden") if len(state.transcript.tags) else ""
    return state.target, state.prefix, state.manner, marks


def broken_by(state: Session) -> tuple[str, ...]:
    """Why no cache can serve the newest request whole: what changed since the last request that was answered."""
    found = _changed_start(state)
    found += tuple(what for what in dict.fromkeys(state.changed) if what != STATE_LEFT_OUT)
    return found or state.changed[:1]  # state that is left out without any other reason is the reason


def _changed_start(state: Session) -> tuple[str, ...]:
    if state.answered is None:
        return ()
    target, prefix, manner, marks = state.answered
    if target != state.target:
        return (OTHER_MODEL,)
    _, instructions, *tools = prefix.split("\n")
    _, now, *tools_now = state.prefix.split("\n")
    renderer, options = manner.split("\n")
    renderer_now, options_now = state.manner.split("\n")
    differs = {
        OTHER_INSTRUCTIONS: instructions != now,
        OTHER_TOOLS: tools != tools_now,
        OTHER_OPTIONS: options != options_now,
        OTHER_RENDERER: renderer != renderer_now,
        OTHER_TAGS: bool(marks) and (marks == "shown") != (state.tag_family is not None),
    }
    return tuple(what for what, differing in differs.items() if differing)


def cache_words(proof: CacheProof) -> str:
    """What a resume, or a later run, saved; or what broke the prefix."""
    read = "cache reads were not reported" if proof.read is None else f"{proof.read:,} tokens read from cache"
    if not proof.broken:
        return f"prefix identical, {read}"
    return f"prefix broken by {' and '.join(_BREAKS.get(what, what) for what in proof.broken)}, {read}"


def is_bound(family: str) -> bool:
    """Whether models of the family bind their state to what stands before it."""
    return family in BOUND_TO_PREFIX
