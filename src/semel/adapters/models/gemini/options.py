"""What differs from server to server, and what a caller may set; all of it is frozen into the run's bundle (P4, P9).

Version 2 of the renderer shows text files as text, since data is for pictures, sound and video; version 1 is kept for runs that
were started with it.
"""

from typing import Literal

from semel.adapters.models.controls import Abilities
from semel.adapters.models.family import Family, FamilyOptions
from semel.adapters.models.file_limits import PDF, FileLimits, Takes


class Dialect(FileLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one server's generateContent differs from the plain ones.

    `foreign_calls` stands in for the signature of calls that this model did not make, where a server demands one. That it is
    here, in what the run froze, is the recorded decision to use it; it never replaces a signature that was received.
    """

    auth: Literal["x-goog-api-key", "bearer"] = "x-goog-api-key"
    text_state: bool = True  # keep the signatures of texts and send them back (M1 to M3)
    foreign_calls: str | None = None


PLAIN = Dialect()


class GeminiOptions(FamilyOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The family's part of a bundle."""

    dialect: Dialect = PLAIN


GEMINI: Family[GeminiOptions] = Family(
    name="gemini",
    renderer=2,
    renderers=frozenset({1, 2}),
    options=GeminiOptions,
    plain=PLAIN,
    reserved=frozenset({"systemInstruction", "contents", "tools"}),
    path="/models/{model}:streamGenerateContent?alt=sse",
    abilities=lambda _dialect: Abilities(
        parallel_switch=False, efforts=frozenset({"none", "minimal", "low", "medium", "high", "xhigh"}), cache=False
    ),
    takes=lambda dialect: Takes(documents=frozenset({PDF}), limits=dialect),
)
