"""Messages as turns of alternating roles, for the families that want them so (wire 0.4, B24).

Results and what the user says next share one turn. The last block of the open turn lacks its closing brace until something
follows, so that the end of the conversation can be marked for the provider's cache without a byte of it being rendered again.
A conversation starts and ends with the user: servers refuse others, and a model is not asked to go on with its own words.
"""

from collections.abc import Callable

from semel.adapters.models.json_text import dump
from semel.adapters.models.rendering import Place
from semel.adapters.models.wire_text import CONTINUE

USER = "user"


class Turns:
    """Writes blocks into turns. `member` is the name of a turn's list, `text` how a family writes a text block."""

    def __init__(self, *, member: str, text: Callable[[str], bytes]) -> None:
        """Nothing is kept here: what is open is in the Place."""
        self._member, self._text = member.encode(), text

    def add(self, role: str, blocks: list[bytes], place: Place) -> bytes:
        """The bytes that append `blocks`, one JSON object or more, as `role`."""
        more = b""
        if not place.role and role != USER:
            more = self.add(USER, [self._text(CONTINUE)], place)
        more += b"}," if place.role == role else self._opening(role, place)
        place.role = role
        return more + b",".join(blocks)[:-1]

    def close(self, place: Place, *, mark: bytes = b"", beside: bytes = b"") -> bytes:
        """The bytes that end it: `mark` goes into the last block, `beside` behind it, both starting with a comma."""
        end = mark + b"}" + beside + b"]}]"
        if place.role == USER:
            return end
        return self._opening(USER, place) + self._text(CONTINUE)[:-1] + end

    def _opening(self, role: str, place: Place) -> bytes:
        before = b"}]}," if place.role else b""
        return before + b'{"role":' + dump(role) + b',"' + self._member + b'":['
