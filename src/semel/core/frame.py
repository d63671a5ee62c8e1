"""The text frame and the tail rule (design 3 and 14): functions of bytes, without a disk."""

import enum

from semel.core.values import Frozen


class TailKind(enum.StrEnum):
    """What lies behind the last good frame."""

    CLEAN = "clean"
    TORN = "torn"
    DAMAGED = "damaged"


class Frame(Frozen, frozen=True, kw_only=True):
    """One good frame. `digest` names the whole history up to it; `offset` is where its line starts."""

    ver: int
    seq: int
    at_ms: int
    fence: int
    synced: int
    left: int
    requires: tuple[str, ...]
    digest: str
    payload: bytes
    offset: int
