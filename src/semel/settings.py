"""Settings: where the state lives. Read when asked, never at import."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from semel.core.values import Frozen
from semel.errors import UnsupportedPlatform

STATE_VARIABLE = "SEMEL_STATE"
STATE_DEFAULT = ".semel"
PARKED_VARIABLE = "SEMEL_ON_PARKED"
"""A command, as one types it, or an http(s) URL: who is told that a session waits for a person."""


class Settings(Frozen, frozen=True, kw_only=True):
    """`state` is the state root; `inline_sync` syncs on the event loop, which is faster where semel owns the loop (design 13).

    `on_parked` is what tells a person that a session waits: a command or a URL.
    """

    state: Path
    inline_sync: bool = False
    on_parked: str | None = None


def read_settings(
    state: str | os.PathLike[str] | None = None, *, inline_sync: bool = False, environ: Mapping[str, str] | None = None
) -> Settings:
    """Settings from an argument, else the environment, else the default `./.semel`. Raises UnsupportedPlatform on Windows."""
    if sys.platform == "win32":
        raise UnsupportedPlatform("semel needs Linux or macOS; on Windows, run it inside WSL")
    environment = os.environ if environ is None else environ
    found = state or environment.get(STATE_VARIABLE) or STATE_DEFAULT
    return Settings(state=Path(found), inline_sync=inline_sync, on_parked=environment.get(PARKED_VARIABLE) or None)
