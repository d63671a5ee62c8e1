"""Whose provider state a request may show: that of the same model at the same endpoint, behind an equal start (M4, wire 1).

Some models sign what they thought together with everything before it, and refuse it behind anything else. For their families a
run whose instructions or tools are not those of the run before starts without that state, by a record that says so.
"""

from semel.core.records import Config
from semel.core.values import Bundle, digest_text

BOUND_TO_PREFIX = frozenset({"anthropic_messages", "bedrock_converse"})


def target_of(bundle: Bundle) -> str:
    """The model that is asked, and where."""
    return "\n".join((bundle.family, bundle.endpoint, bundle.model))


def prefix_of(instructions: str, tools: str, config: Config) -> str:
    """What stands before the first message: the names of the entries, and the schema of the tool that takes a typed output."""
    schema = "" if config.output_schema is None else digest_text(config.output_schema)
    return "\n".join((config.bundle.family, instructions, tools, schema))


def is_bound(family: str) -> bool:
    """Whether models of the family bind their state to what stands before it."""
    return family in BOUND_TO_PREFIX
