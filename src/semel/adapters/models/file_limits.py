"""What a server takes of files: which kinds, how large, and how many in one message. Data of a dialect, with a row's own in it.

A limit that nobody told is None: nothing is guessed, and the server has the last word.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from semel.core.values import Frozen, Media

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF = "application/pdf"
NO_FORM = "this model's API does not take it"

Most = Annotated[int, Meta(ge=0)] | None
Sort = Literal["pictures", "documents"]


class FileLimits(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members of a dialect that bound files, in bytes of the file and in files of one message; 0 is "takes none"."""

    picture_bytes_most: Most = None
    pictures_most: Most = None
    document_bytes_most: Most = None
    documents_most: Most = None

    def exceeded(self, sort: Sort, size_bytes: int, counted: Mapping[str, int]) -> str | None:
        """The limit that one more file of this size breaks, behind those of its message that are `counted`; None for none."""
        size, number = _MEMBERS[sort]
        size_most, number_most = getattr(self, size), getattr(self, number)
        if size_most is not None and size_bytes > size_most:
            return size
        return number if number_most is not None and counted.get(sort, 0) >= number_most else None

    def words(self, limit: str, size_bytes: int) -> str:
        """Why a file of this size that breaks `limit` is not shown."""
        sort, most = next(sort for sort, members in _MEMBERS.items() if limit in members), getattr(self, limit)
        if most == 0:
            return f"this model takes no {sort}"
        if limit in (size for size, _ in _MEMBERS.values()):
            return f"it has {size_bytes} bytes, and this model's API takes {sort} of at most {most}"
        return f"this model's API takes at most {most} {sort} in one message"


_MEMBERS: Mapping[Sort, tuple[str, str]] = {
    "pictures": ("picture_bytes_most", "pictures_most"),
    "documents": ("document_bytes_most", "documents_most"),
}


@dataclass(frozen=True, kw_only=True)
class Takes:
    """What one renderer of a family shows as it is: pictures, and documents of these types, within the limits of a server."""

    documents: frozenset[str]
    limits: FileLimits

    def sort_of(self, media_type: str) -> Sort | None:
        """What a file of this type counts as; None for one that there is no form for."""
        if media_type in IMAGES:
            return "pictures"
        return "documents" if media_type in self.documents else None

    def verdicts(self, files: Iterable[Media], counted: dict[str, int]) -> list[str | None]:
        """What stands against each file, behind those of its message that are `counted`; those that are shown are counted.

        NO_FORM, the name of the limit that it breaks, or None. The door and the renderer both ask here, so that no file that was
        let in is left out. Text files are not among `files` where they have another form.
        """
        return [self._verdict(media, counted) for media in files]

    def why(self, verdict: str, media: Media) -> str:
        """A verdict in words."""
        return NO_FORM if verdict == NO_FORM else self.limits.words(verdict, media.size_bytes)

    def _verdict(self, media: Media, counted: dict[str, int]) -> str | None:
        sort = self.sort_of(media.media_type)
        if sort is None:
            return NO_FORM
        limit = self.limits.exceeded(sort, media.size_bytes, counted)
        if limit is None:
            count(counted, sort)
        return limit


def count(counted: dict[str, int], sort: Sort) -> None:
    """One more of this sort."""
    counted[sort] = counted.get(sort, 0) + 1
