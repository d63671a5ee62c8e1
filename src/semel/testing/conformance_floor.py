"""The contract of `ports.floor` as checks that any adapter must pass, one per numbered line."""

import threading
from collections.abc import Callable, Mapping
from typing import Protocol

from semel.errors import InvariantBroken, StoreError, must
from semel.ports.floor import FeatureFloor


class FloorBench(Protocol):
    """A fresh medium for a feature floor."""

    def process(self) -> FeatureFloor:
        """The floor, as another process sees it."""

    def calls(self) -> int:
        """How often the medium was touched so far."""

    def spoil(self) -> None:
        """Damage the floor."""


def refuses_now(error: type[Exception], act: Callable[[], object]) -> None:
    """Hold `act` to raising `error`."""
    try:
        act()
    except error:
        return
    raise InvariantBroken(f"{error.__name__} was expected")


def _raised_is_durable(bench: FloorBench) -> None:
    bench.process().raise_to(["b/v1", "a/v1"])
    must(bench.process().names() == {"a/v1", "b/v1"}, "another process finds every name")


def _floor_only_grows(bench: FloorBench) -> None:
    bench.process().raise_to(["a/v1"])
    raises = [threading.Thread(target=bench.process().raise_to, args=([f"name-{n}/v1"],)) for n in range(8)]
    for one in raises:
        one.start()
    for one in raises:
        one.join()
    must(bench.process().names() == {"a/v1", *(f"name-{n}/v1" for n in range(8))}, "concurrent raises lose no name")


def _proven_names_are_free(bench: FloorBench) -> None:
    floor = bench.process()
    floor.raise_to(["a/v1", "b/v1"])
    calls = bench.calls()
    floor.raise_to(["b/v1"])
    floor.raise_to([])
    must(bench.calls() == calls, "a proven name costs no call")


def _damage_is_not_absence(bench: FloorBench) -> None:
    floor = bench.process()
    must(floor.names() == frozenset(), "a missing floor holds no name")
    floor.raise_to(["a/v1"])
    bench.spoil()
    refuses_now(StoreError, bench.process().names)
    refuses_now(StoreError, lambda: bench.process().raise_to(["b/v1"]))


FLOOR_CHECKS: Mapping[str, Callable[[FloorBench], None]] = {
    "FLOOR-1": _raised_is_durable,
    "FLOOR-2": _floor_only_grows,
    "FLOOR-3": _proven_names_are_free,
    "FLOOR-4": _damage_is_not_absence,
}


def check_floor(make_bench: Callable[[], FloorBench]) -> None:
    """Hold an adapter to FLOOR-1 to FLOOR-4."""
    for check in FLOOR_CHECKS.values():
        check(make_bench())
