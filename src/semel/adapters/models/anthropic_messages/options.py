"""What differs from server to server, and what a caller may set; all of it is frozen into the run's bundle (P4, P9).

The defaults are those of a compatible server: the old version of the API, no marks for a cache. Version 2 of the renderer shows
text files as documents of text; version 1 is kept for runs that were started with it, and names them only.
"""

from typing import Literal

from semel.adapters.models.controls import Abilities, NamedTool
from semel.adapters.models.family import Family, FamilyOptions
from semel.adapters.models.file_limits import PDF, FileLimits, Most, Takes
from semel.errors import BadSettings

WITHOUT_SAMPLING = "2026-10-21"  # from this version on, the API refuses the sampling parameters
_SAMPLING = frozenset({"temperature", "top_p", "top_k"})


class Dialect(FileLimits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one server's Messages API differs from the plain ones."""

    version: str = "2023-06-01"
    betas: tuple[str, ...] = ()
    auth: Literal["x-api-key", "bearer"] = "x-api-key"
    cache: Literal["off", "system", "conversation"] = "off"  # what is marked for the provider's cache
    max_tokens: int = 8192  # sent where the caller sets no limit, since the API requires one
    echo_thinking: bool = True  # send thinking back as it came
    picture_bytes_most: Most = 5 * 1024 * 1024 * 3 // 4  # 5 MiB as base64


PLAIN = Dialect()


class MessagesOptions(FamilyOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The family's part of a bundle."""

    dialect: Dialect = PLAIN


def _check(options: MessagesOptions) -> None:
    version, controls = options.dialect.version, options.controls
    if version >= WITHOUT_SAMPLING and (odd := _SAMPLING.intersection(options.body)):
        raise BadSettings(
            f"anthropic-version {version} refuses {min(odd)}; remove it from the model option body, or set dialect.version"
        )
    forced = controls.tool_choice == "required" or isinstance(controls.tool_choice, NamedTool)
    if forced and controls.reasoning is not None and controls.reasoning.budget_tokens is not None:
        raise BadSettings("the Messages API refuses a forced tool_choice together with reasoning.budget_tokens; keep one")


ANTHROPIC_MESSAGES: Family[MessagesOptions] = Family(
    name="anthropic_messages",
    renderer=2,
    renderers=frozenset({1, 2}),
    options=MessagesOptions,
    plain=PLAIN,
    reserved=frozenset({"model", "max_tokens", "messages", "system", "stream", "tools"}),
    path="/messages",
    abilities=lambda _dialect: Abilities(efforts=frozenset({"none", "low", "medium", "high", "xhigh", "max"})),
    takes=lambda dialect: Takes(documents=frozenset({PDF}), limits=dialect),
    check=_check,
)
