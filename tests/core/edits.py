"""Edits of a log's records: what a bug would have written, and what a legal writer would."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from semel.core.fold import fold
from semel.core.records import (
    Record,
)
from semel.core.state import Logged, Session
from tests.core.machine import LINEAGE
from tests.core.scripts import SCRIPTS
from tests.core.writes import logged_of

Change = Callable[[list[Record]], list[Record]]
Edit = Callable[[Any], list[Any]]


def records_of(name: str) -> list[Record]:
    return [logged.record for logged in logged_of(SCRIPTS[name]().writes) if logged.record is not None]


def numbered(records: list[Record]) -> list[Logged]:
    return [Logged(seq=at, at_ms=at, fence=1, record=record) for at, record in enumerate(records, start=1)]


def folds(records: list[Record]) -> Session:
    return fold(numbered(records), Session(session="s", lineage=LINEAGE))


def at(kind: type, edit: Edit, *, nth: int = 0) -> Change:
    """Edit the nth record of a kind."""

    def apply(records: list[Record]) -> list[Record]:
        place = [i for i, record in enumerate(records) if isinstance(record, kind)][nth]
        return [*records[:place], *edit(records[place]), *records[place + 1 :]]

    return apply


def twice(kind: type, *, nth: int = 0) -> Change:
    return at(kind, lambda record: [record, record], nth=nth)


def without(kind: type, *, nth: int = 0) -> Change:
    return at(kind, lambda _record: [], nth=nth)


def but(kind: type, *, nth: int = 0, **fields: Any) -> Change:
    return at(kind, lambda record: [replace(record, **fields)], nth=nth)


def up_to(kind: type, *, nth: int = 0) -> Change:
    """The log cut behind a record."""

    def apply(records: list[Record]) -> list[Record]:
        place = [i for i, record in enumerate(records) if isinstance(record, kind)][nth]
        return records[: place + 1]

    return apply


def then(first: Change, *more: Change | Record) -> Change:
    """One change after another; a record is put behind."""

    def apply(records: list[Record]) -> list[Record]:
        records = first(records)
        for change in more:
            records = change(records) if callable(change) else [*records, change]
        return records

    return apply


def same(records: list[Record]) -> list[Record]:
    return records


def swapped(kind: type, other: type) -> Change:
    """The first record of a kind and the first of another change places."""

    def apply(records: list[Record]) -> list[Record]:
        one = next(i for i, record in enumerate(records) if isinstance(record, kind))
        two = next(i for i, record in enumerate(records) if isinstance(record, other))
        out = list(records)
        out[one], out[two] = out[two], out[one]
        return out

    return apply


def first_of(name: str, kind: type, *, nth: int = 0) -> Any:
    return [record for record in records_of(name) if isinstance(record, kind)][nth]
