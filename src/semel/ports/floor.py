"""The feature floor of a state root: the names of all features that any of its logs may need (W16-W24).

FLOOR-1  `raise_to` returns only when every name is durable in the floor: file and directory synced.
FLOOR-2  The floor only grows; concurrent raises, also by other processes, lose no name.
FLOOR-3  A name that this process already proved durable costs no file-system call.
FLOOR-4  A floor that cannot be read, or holds what no writer wrote, raises; it is never taken for absent.
"""

from collections.abc import Iterable
from typing import Protocol


class FeatureFloor(Protocol):
    """The floor of one state root."""

    def names(self) -> frozenset[str]:
        """The names it holds now; empty when no gated record was ever written."""

    def raise_to(self, names: Iterable[str]) -> None:
        """Make every name durable in the floor; raises StoreError and then nothing may be appended (W16)."""
