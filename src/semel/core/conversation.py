"""The conversation of a lineage: where each message stands in the log, and the messages themselves when somebody asks.

The state keeps a `Transcript`: eight bytes for a message, and the content of the few that no single record gives. A
`Conversation` is what the model sees of it, with a view's replacement and with tags; it reads each message when it is taken.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import overload

from msgspec import field
from msgspec.structs import replace

from semel.core.persistent import Chain, Growing, Packed
from semel.core.places import KIND, NOTHING, OPAQUE, OWN, PORTABLE, FindRecord, content_of, own_place, records_of, seq_of
from semel.core.sendable import portable, sendable
from semel.core.tags import marked
from semel.core.values import AssistantMessage, Frozen, Message
from semel.errors import InvariantBroken

Tags = tuple[int, ...]


class Transcript(Frozen, frozen=True, kw_only=True):
    """Every message of the lineage that a request may show, in order. `own` are those whose content stands nowhere else.

    `tags` are the tags of the parts of all messages, one after the other, and `tag_ends` says for each message where its own
    end; messages behind the last one with tags are not in it.
    """

    places: Packed = field(default_factory=Packed)
    own: Chain[Message] = field(default_factory=Chain)
    tags: Packed = field(default_factory=Packed)
    tag_ends: Packed = field(default_factory=Packed)

    def __len__(self) -> int:
        """How many messages."""
        return len(self.places)

    def kind(self, at: int) -> int:
        """What kind of message stands there: `USER`, `ANSWER` or `RESULT` of `core.places`."""
        return self.places[at] & KIND

    def plus(self, messages: Sequence[int | Message], tags: Sequence[Tags] = ()) -> "Transcript":
        """With these messages behind the others, each by its place, or itself; `tags` are those of the first of them.

        What no request can show is left out (B24).
        """
        own, places, left_out = self.own, list[int](), set[int]()
        for at, message in enumerate(messages):
            if not isinstance(message, int):
                places.append(own_place(len(own), message))
                own = own.plus(message)
            elif message & KIND != NOTHING:
                places.append(message)
            else:
                left_out.add(at)
        tags = [one for at, one in enumerate(tags) if at not in left_out]
        if not any(tags):
            return replace(self, places=self.places.plus(places), own=own)
        start = self.tag_ends[len(self.tag_ends) - 1] if len(self.tag_ends) else 0
        gap = [start] * (len(self.places) - len(self.tag_ends))
        ends = list(accumulate(map(len, tags), initial=start))[1:]
        return replace(
            self,
            places=self.places.plus(places),
            own=own,
            tags=self.tags.plus(tag for one in tags for tag in one),
            tag_ends=self.tag_ends.plus([*gap, *ends]),
        )

    def plus_places(self, places: list[int]) -> "Transcript":
        """With messages behind the others that all stand in the log, are all shown, and have no tags: an ordinary turn."""
        return replace(self, places=self.places.plus(places))

    def corrected(self, at: int, message: Message) -> "Transcript":
        """With another message at a place; O(n)."""
        place = own_place(len(self.own), message)
        return replace(self, places=self.places.replaced(at, place), own=self.own.plus(message))

    @property
    def holds_opaque(self) -> bool:
        """Whether some answer has provider state that a request shows; O(n)."""
        return any(place & OPAQUE and not place & PORTABLE for place in self.places)

    def for_another(self) -> "Transcript":
        """As a model may see it that wrote none of it: opaque state is left out from here on, of all that is there now."""
        if not self.holds_opaque:
            return self
        return replace(self, places=Packed().plus(place | PORTABLE if place & OPAQUE else place for place in self.places))

    def tags_at(self, at: int) -> Tags:
        """The tags of the parts of a message as it was received."""
        if at >= len(self.tag_ends):
            return ()
        start = self.tag_ends[at - 1] if at else 0
        return tuple(self.tags[number] for number in range(start, self.tag_ends[at]))

    def message(self, at: int, find: FindRecord) -> tuple[Message, Tags]:
        """A message as it is sent, and the tags of its parts. Raises what `find` raises."""
        place = self.places[at]
        found = self.own[seq_of(place)] if place & OWN else content_of(place, find)
        sent, tags = sendable(found, self.tags_at(at))
        if sent is None:
            raise InvariantBroken(f"message {at} of the transcript says nothing")
        return portable(sent, tags) if place & PORTABLE else (sent, tags)


class View(Frozen, frozen=True, kw_only=True):
    """A range of the transcript that the model sees replaced."""

    start: int
    end: int
    replacement: tuple[Message, ...]
    version: int

    @property
    def holds_opaque(self) -> bool:
        """Whether some answer of the replacement has provider state."""
        return any(isinstance(message, AssistantMessage) and message.opaque for message in self.replacement)

    def for_another(self) -> "View":
        """As a model may see it that wrote none of it. Each answer of a view says something else, too (C7)."""
        if not self.holds_opaque:
            return self
        return replace(self, replacement=tuple(portable(message, ())[0] for message in self.replacement))


class Conversation(Growing[Message]):
    """What the model sees: the transcript, with the range of a view replaced, and marks where a family shows tags.

    Each message is read when it is taken, so taking one raises what `find` raises.
    """

    __slots__ = ("_family", "_find", "_transcript", "_view")

    def __init__(self, transcript: Transcript, find: FindRecord, *, view: View | None = None, family: str | None = None) -> None:
        """`find` reads the records that the transcript names; `family` is that of the model, where its requests show tags."""
        self._transcript, self._find, self._view, self._family = transcript, find, view, family

    @property
    def origin(self) -> object:
        """The store of the places."""
        return self._transcript.places.origin

    def grew_from(self, other: Growing[Message]) -> bool:
        """Whether this shows the very messages of `other` first."""
        if not isinstance(other, Conversation):
            return False
        before, view, family = other._transcript, other._view, other._family  # noqa: SLF001  another one of this class
        return self._transcript.places.grew_from(before.places) and self._view is view and self._family == family

    @property
    def records(self) -> frozenset[int]:
        """The seqs of the records that its messages are read from, for a reader that has to choose what to keep; O(n)."""
        view, places = self._view, self._transcript.places
        hidden = range(0) if view is None else range(view.start, view.end)
        return frozenset(seq for at, place in enumerate(places) if at not in hidden for seq in records_of(place))

    def __len__(self) -> int:
        """How many messages the model sees."""
        view = self._view
        return len(self._transcript) - (0 if view is None else view.end - view.start - len(view.replacement))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        """Message or list of messages, as of a tuple."""
        if isinstance(index, slice):
            return [self._shown(at) for at in range(*index.indices(len(self)))]
        count = len(self)
        if not -count <= index < count:
            raise IndexError(index)
        return self._shown(index % count)

    def _shown(self, at: int) -> Message:
        view = self._view
        if view is not None and at >= view.start:
            if at < view.start + len(view.replacement):
                return view.replacement[at - view.start]
            at += view.end - view.start - len(view.replacement)
        message, tags = self._transcript.message(at, self._find)
        return marked(message, tags, self._family) if self._family is not None and tags else message
