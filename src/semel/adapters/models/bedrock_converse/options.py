"""What differs from model to model, and what a caller may set; all of it is frozen into the run's bundle (P4, P9, M20).

The limits of files are those that the description of the service in botocore names for a message. Version 2 of the renderer keeps
to them, and shows text of every kind; version 1 is kept for runs that were started with it.
"""

from typing import Literal

from semel.adapters.models.controls import Abilities
from semel.adapters.models.family import Family, FamilyOptions
from semel.adapters.models.file_limits import FileLimits, Most, Takes
from semel.adapters.models.media import DOCUMENTS


class Dialect(FileLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one endpoint or model differs from the plain ones."""

    auth: Literal["bearer", "sigv4"] = "bearer"
    region: str | None = None  # what a signature is for, where the host does not say it
    cache: Literal["off", "system", "conversation"] = "off"  # where cache points are set
    reasoning: bool = True  # keep what the model thought, and send it back (M20)
    unsigned_reasoning: bool = False  # send back also what no model signed
    metadata_required: bool = True  # False takes an answer for complete without its usage
    picture_bytes_most: Most = 3_750_000
    pictures_most: Most = 20
    document_bytes_most: Most = 4_500_000
    documents_most: Most = 5


PLAIN = Dialect()


class ConverseOptions(FamilyOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The family's part of a bundle."""

    dialect: Dialect = PLAIN


BEDROCK_CONVERSE: Family[ConverseOptions] = Family(
    name="bedrock_converse",
    renderer=2,
    renderers=frozenset({1, 2}),
    options=ConverseOptions,
    plain=PLAIN,
    reserved=frozenset({"modelId", "messages", "system"}),
    path="/model/{model}/converse-stream",
    abilities=lambda _dialect: Abilities(
        tool_choices=frozenset({"auto", "required", "tool"}),
        parallel_switch=False,
        efforts=frozenset({"none", "low", "medium", "high", "xhigh", "max"}),
        show=False,
    ),
    takes=lambda dialect: Takes(documents=frozenset(DOCUMENTS), limits=dialect),
)
