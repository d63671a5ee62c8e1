"""What differs from server to server, and what a caller may set; all of it is frozen into the run's bundle (P4, P9).

The defaults here are the generic compatible server. Version 2 of the renderer never sends blank text (B24), bounds ids, and sends
arguments that hold half a surrogate pair with U+FFFD in its place (B19); version 3 shows text files as text. The older ones are
kept for runs that were started with them.
"""

from typing import Literal

from semel.adapters.models.controls import Abilities
from semel.adapters.models.family import Family, FamilyOptions
from semel.adapters.models.file_limits import PDF, FileLimits, Takes

REASONING_FORMATS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
CALL_EXTRA_FORMAT = "tool_call_extra"  # further members of the tool call before it, as some gateways need them back


class Dialect(FileLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one server's chat completions differ from the plain ones."""

    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    include_usage: bool = True  # ask for the usage chunk; a server that always sends it may not know the field
    store: bool | None = None  # whether the vendor may keep the exchange; None leaves the field out
    call_content: Literal["null", "empty", "absent"] = "null"  # `content` of an answer that holds only calls
    echo_reasoning: bool = True  # send reasoning back under the name it came with
    done_required: bool = True  # False for a server known to end its stream without [DONE]
    cost_currency: str | None = None  # the currency of `usage.cost`, where the server reports one
    reasoning: Literal["effort", "object", "thinking"] = "effort"  # its own member, in `reasoning`, beside `thinking`
    auth: Literal["bearer", "api-key"] = "bearer"


PLAIN = Dialect()


class ChatOptions(FamilyOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The family's part of a bundle."""

    dialect: Dialect = PLAIN


def _abilities(dialect: Dialect) -> Abilities:
    return Abilities(budget=dialect.reasoning == "object", show=dialect.reasoning == "object", cache=False)


OPENAI_CHAT: Family[ChatOptions] = Family(
    name="openai_chat",
    renderer=3,
    renderers=frozenset({1, 2, 3}),
    options=ChatOptions,
    plain=PLAIN,
    reserved=frozenset(
        {"model", "messages", "stream", "stream_options", "tools", "max_tokens", "max_completion_tokens", "store", "n"}
    ),
    path="/chat/completions",
    abilities=_abilities,
    takes=lambda dialect: Takes(documents=frozenset({PDF}), limits=dialect),
)
