"""Whose provider state a request may show: that of the same model at the same endpoint, behind an equal start (M4, wire 1).

Some models sign what they thought together with everything before it, and refuse it behind anything else. For their families a
run whose instructions or tools are not those of the run before starts without that state, by a record that says so.
"""

from semel.core.records import Config
from semel.core.state import CacheProof
from semel.core.values import Bundle, digest_text

OTHER_MODEL, OTHER_INSTRUCTIONS, OTHER_TOOLS, STATE_REFUSED = "model", "instructions", "tools", "provider_state"
_BREAKS = {
    OTHER_MODEL: "another model",
    OTHER_INSTRUCTIONS: "other instructions",
    OTHER_TOOLS: "other tools",
    STATE_REFUSED: "provider state that was refused and is left out",
}
BOUND_TO_PREFIX = frozenset({"anthropic_messages", "bedrock_converse"})


def target_of(bundle: Bundle) -> str:
    """The model that is asked, and where."""
    return "\n".join((bundle.family, bundle.endpoint, bundle.model))


def prefix_of(instructions: str, tools: str, config: Config) -> str:
    """What stands before the first message: the names of the entries, and the schema of the tool that takes a typed output."""
    schema = "" if config.output_schema is None else digest_text(config.output_schema)
    return "\n".join((config.bundle.family, instructions, tools, schema))


def breaks(prefix: str, target: str, now: Config, instructions: str, tools: str) -> tuple[str, ...]:
    """What changed between the start of the requests before and that of a new run: why no cache can serve it whole."""
    if target_of(now.bundle) != target:
        return (OTHER_MODEL,)
    _, *before = prefix.split("\n")
    _, *after = prefix_of(instructions, tools, now).split("\n")
    found = [OTHER_INSTRUCTIONS] if before[:1] != after[:1] else []
    return (*found, OTHER_TOOLS) if before[1:] != after[1:] else tuple(found)


def cache_words(proof: CacheProof) -> str:
    """What a resume, or a later run, saved; or what broke the prefix."""
    read = "cache reads were not reported" if proof.read is None else f"{proof.read:,} tokens read from cache"
    if not proof.broken:
        return f"prefix identical, {read}"
    return f"prefix broken by {' and '.join(_BREAKS.get(what, what) for what in proof.broken)}, {read}"


def is_bound(family: str) -> bool:
    """Whether models of the family bind their state to what stands before it."""
    return family in BOUND_TO_PREFIX
