"""What differs from server to server, and what a caller may set; all of it is frozen into the run's bundle (P4, P9, M21).

The exchange is stateless: the server keeps nothing, the whole conversation is sent each time, and what the model thought comes
back encrypted. `truncation` is never sent: a server that drops old items in silence would break the pairing. Version 2 of the
renderer shows text files as text; version 1 is kept for runs that were started with it.
"""

from typing import Literal

from semel.adapters.models.controls import Abilities
from semel.adapters.models.family import Family, FamilyOptions
from semel.adapters.models.file_limits import PDF, FileLimits, Takes


class Dialect(FileLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one server's Responses API differs from the plain ones."""

    store: bool | None = False  # whether the vendor may keep the exchange; None leaves the field out, and the server decides
    encrypted_reasoning: bool = True  # ask for it, and send it back
    text_state: bool = True  # keep what says which message is a comment and which the answer, and send it back (M1 to M3)
    cache_key: bool = False  # name the conversation to the server's cache, so that its requests meet there (M22)
    strict_tools: bool = False  # always sent, since servers take its absence for true
    auth: Literal["bearer", "api-key"] = "bearer"


PLAIN = Dialect()


class ResponsesOptions(FamilyOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The family's part of a bundle."""

    dialect: Dialect = PLAIN


OPENAI_RESPONSES: Family[ResponsesOptions] = Family(
    name="openai_responses",
    renderer=2,
    renderers=frozenset({1, 2}),
    options=ResponsesOptions,
    plain=PLAIN,
    reserved=frozenset(
        {
            "model",
            "instructions",
            "input",
            "tools",
            "stream",
            "store",
            "include",
            "max_output_tokens",
            "previous_response_id",
            "conversation",
            "background",
            "truncation",
        }
    ),
    path="/responses",
    abilities=lambda _dialect: Abilities(budget=False, cache=False),
    takes=lambda dialect: Takes(documents=frozenset({PDF}), limits=dialect),
)
