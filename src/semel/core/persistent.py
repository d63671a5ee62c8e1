"""Two persistent collections for a state that is frozen but never copied (design 5).

Both only ever grow at the end, so versions share one store: a version is the store and its own length. Growing the newest
version is O(1); growing an older one, which only tests and forks do, copies.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")
V = TypeVar("V")


class Chain(Sequence[T], Generic[T]):
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

    def grew_from(self, other: "Chain[T]") -> bool:
        """Whether this is `other` or a later version of it, so that it starts with the very same items."""
        return self._items is other._items and self._size >= other._size  # noqa: SLF001  another version of this class

    def replaced(self, index: int, item: T) -> "Chain[T]":
        """A version that shares nothing with this one and holds `item` at `index`; O(n), for rare corrections."""
        items = self._items[: self._size]
        items[index] = item
        return Chain(items)

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
        return (self._items[i] for i in range(self._size))

    def __eq__(self, other: object) -> bool:
        """Equal items in equal order."""
        return isinstance(other, Chain) and self._size == other._size and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # compared by content, so not hashable

    def __repr__(self) -> str:
        """As a list."""
        return f"Chain({list(self)!r})"


class Table(Mapping[str, V], Generic[V]):
    """A frozen mapping with O(1) `plus`; keys are never changed or removed, only added."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: dict[str, tuple[int, V]] | None = None) -> None:
        """Take ownership of `items`, a mapping from key to (rank, value)."""
        self._items: dict[str, tuple[int, V]] = {} if items is None else items
        self._size = len(self._items)

    def plus(self, key: str, value: V) -> "Table[V]":
        """A version that also holds `key`; a key it already holds is an error of the caller."""
        if key in self:
            raise KeyError(f"{key!r} is already there")
        items = self._items
        if len(items) != self._size:
            items = {name: pair for name, pair in items.items() if pair[0] < self._size}
        items[key] = (self._size, value)
        return Table(items)

    def __getitem__(self, key: str) -> V:
        """Value of a key of this version."""
        rank, value = self._items[key]
        if rank >= self._size:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        """Keys in the order they were added."""
        return iter([name for name, pair in self._items.items() if pair[0] < self._size])

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
