"""Persistent collections for a state that is frozen but never copied (design 5).

All only ever grow at the end, so versions share one store: a version is the store and its own length. Growing the newest version
is O(1); growing an older one, which only tests and forks do, copies.
"""

from abc import abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Generic, TypeVar, overload

T = TypeVar("T")
V = TypeVar("V")


class Growing(Sequence[T], Generic[T]):
    """A sequence whose later versions start with the very same items, so that what was made of those can be kept."""

    __slots__ = ()

    @property
    @abstractmethod
    def origin(self) -> object:
        """The store that a version shares with those it grew from; it stands for them by its identity."""

    @abstractmethod
    def grew_from(self, other: "Growing[T]") -> bool:
        """Whether this is `other` or a later version of it, so that it starts with the very same items. O(1)."""


class Chain(Growing[T], Generic[T]):
    """A frozen sequence with O(1) `plus`."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: list[T] | None = None) -> None:
        """Take ownership of `items`."""
        self._items: list[T] = [] if items is None else items
        self._size = len(self._items)

    def plus(self, *more: T) -> "Chain[T]":
        """A version with `more` behind it."""
        items = self._items if len(self._items) == self._size else self._items[: self._size]
        items.extend(more)
        return Chain(items)

    @property
    def origin(self) -> object:
        """The store."""
        return self._items

    def grew_from(self, other: Growing[T]) -> bool:
        """Whether this is `other` or a later version of it."""
        return self.origin is other.origin and self._size >= len(other)

    def __len__(self) -> int:
        """Number of items of this version."""
        return self._size

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        """Item or list of items, as of a tuple."""
        if isinstance(index, slice):
            return [self._items[i] for i in range(*index.indices(self._size))]
        if not -self._size <= index < self._size:
            raise IndexError(index)
        return self._items[index % self._size]

    def __iter__(self) -> Iterator[T]:
        """Items of this version, also while a newer one grows."""
        return islice(self._items, self._size)

    def __eq__(self, other: object) -> bool:
        """Equal items in equal order."""
        return isinstance(other, Chain) and self._size == other._size and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # compared by content, so not hashable

    def __repr__(self) -> str:
        """As a list."""
        return f"Chain({list(self)!r})"


class Packed:
    """A frozen sequence of numbers from 0 below 2^64 with O(1) `plus`, at 8 bytes each."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: "array[int] | None" = None) -> None:
        """Take ownership of `items`, an array of unsigned 64-bit numbers."""
        self._items: array[int] = array("Q") if items is None else items
        self._size = len(self._items)

    def plus(self, more: Iterable[int]) -> "Packed":
        """A version with `more` behind it."""
        items = self._items if len(self._items) == self._size else self._items[: self._size]
        items.extend(more)
        return Packed(items)

    def replaced(self, index: int, number: int) -> "Packed":
        """A version that shares nothing with this one and holds `number` at `index`; O(n), for rare corrections."""
        items = self._items[: self._size]
        items[index] = number
        return Packed(items)

    @property
    def origin(self) -> object:
        """The store that versions share."""
        return self._items

    def grew_from(self, other: "Packed") -> bool:
        """Whether this is `other` or a later version of it."""
        return self._items is other.origin and self._size >= len(other)

    def __len__(self) -> int:
        """Number of numbers of this version."""
        return self._size

    def __getitem__(self, index: int) -> int:
        """The number at `index`, from 0."""
        if not 0 <= index < self._size:
            raise IndexError(index)
        return self._items[index]

    def __iter__(self) -> Iterator[int]:
        """Numbers of this version, also while a newer one grows."""
        return islice(self._items, self._size)

    def __eq__(self, other: object) -> bool:
        """Equal numbers in equal order."""
        return isinstance(other, Packed) and self._items[: self._size] == other._items[: other._size]

    __hash__ = None  # type: ignore[assignment]  # compared by content, so not hashable

    def __repr__(self) -> str:
        """As a list."""
        return f"Packed({list(self)!r})"


class Table(Mapping[str, V], Generic[V]):
    """A frozen mapping with O(1) `plus`; keys are never changed or removed, only added."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: dict[str, V] | None = None) -> None:
        """Take ownership of `items`."""
        self._items: dict[str, V] = {} if items is None else items
        self._size = len(self._items)

    def plus(self, key: str, value: V) -> "Table[V]":
        """A version that also holds `key`; a key it already holds is an error of the caller."""
        if key in self:
            raise KeyError(f"{key!r} is already there")
        items = self._items if len(self._items) == self._size else dict(self.items())
        items[key] = value
        return Table(items)

    def __getitem__(self, key: str) -> V:
        """Value of a key of this version."""
        if key not in self:
            raise KeyError(key)
        return self._items[key]

    @overload
    def get(self, key: str, /) -> V | None: ...
    @overload
    def get(self, key: str, /, default: V | T) -> V | T: ...
    def get(self, key: str, /, default: V | T | None = None) -> V | T | None:
        """Value of a key of this version, else `default`."""
        return self._items[key] if key in self else default

    def __contains__(self, key: object) -> bool:
        """Whether this version has the key; the keys that newer versions added are the last ones of the store."""
        if key not in self._items:
            return False
        newer = len(self._items) - self._size
        return not newer or key not in islice(reversed(self._items), newer)

    def __iter__(self) -> Iterator[str]:
        """Keys in the order they were added."""
        return iter(list(islice(self._items, self._size)))

    def __len__(self) -> int:
        """Number of keys of this version."""
        return self._size

    def __eq__(self, other: object) -> bool:
        """Equal keys with equal values."""
        return isinstance(other, Table) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # compared by content, so not hashable

    def __repr__(self) -> str:
        """As a dict."""
        return f"Table({dict(self)!r})"


class _Hashes:
    """Hashes in the order they came, and an open table that finds the place of each in that order (0 is a free slot).

    The table is made when somebody asks, and then goes on from there: who only adds, as a fold does, pays for no table.
    """

    __slots__ = ("_placed", "_slots", "order")

    def __init__(self, order: "array[int]") -> None:
        self.order = order
        self._slots: array[int] = array("I", (0,))
        self._placed = 0

    def place(self, found: int) -> int:
        """The place of a hash, from 1; 0 if it is not there."""
        if self._placed != len(self.order):
            self._catch_up()
        order, slots, last = self.order, self._slots, len(self._slots) - 1
        slot = found & last
        while at := slots[slot]:
            if order[at - 1] == found:
                return at
            slot = (slot + 1) & last
        return 0

    def _catch_up(self) -> None:
        """Give each hash its slot that has none yet; the first of equal ones has it."""
        order = self.order
        if len(order) * 2 >= len(self._slots):  # at least four slots to a hash
            self._slots = array("I", bytes((1 << (len(order) * 4 + 8).bit_length()) * self._slots.itemsize))
            self._placed = 0
        slots, last = self._slots, len(self._slots) - 1
        for at in range(self._placed, len(order)):
            slot = order[at] & last
            while (taken := slots[slot]) and order[taken - 1] != order[at]:
                slot = (slot + 1) & last
            if not taken:
                slots[slot] = at + 1
        self._placed = len(order)


class Names:
    """A frozen set of names with O(1) `plus` that keeps 64 bits of each as often as it was added, and not the name.

    Two names that share those bits, as happens in one of 10^7 logs with a million names, count as one: so it may say of a name
    that it is there although it is not, and never the other way round.
    """

    __slots__ = ("_hashes", "_size")

    def __init__(self, hashes: _Hashes | None = None) -> None:
        """Take ownership of `hashes`; empty without."""
        self._hashes = _Hashes(array("q")) if hashes is None else hashes
        self._size = len(self._hashes.order)

    def plus(self, names: Iterable[str]) -> "Names":
        """A version that holds these names, too."""
        hashes = self._hashes
        if len(hashes.order) != self._size:
            hashes = _Hashes(hashes.order[: self._size])
        hashes.order.extend(map(hash, names))
        return Names(hashes)

    def __contains__(self, name: str) -> bool:
        """Whether this version holds the name."""
        return 0 < self._hashes.place(hash(name)) <= self._size

    def __eq__(self, other: object) -> bool:
        """Equal names, added in equal order."""
        return isinstance(other, Names) and self._hashes.order[: self._size] == other._hashes.order[: other._size]

    __hash__ = None  # type: ignore[assignment]  # compared by content, so not hashable

    def __repr__(self) -> str:
        """How many there are."""
        return f"Names({self._size})"
