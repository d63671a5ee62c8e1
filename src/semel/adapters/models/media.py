"""Files on the wire: those that a family shows as they are, text as what it is, and a text in the place of all others.

A request is never refused for one picture in its history: what a family has no form for, or what is more than its server takes,
is named in a text, so that the model knows that something was there (B18).
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from semel.adapters.models.file_limits import IMAGES, NO_FORM, PDF, Takes
from semel.core.media import is_text_kind, text_of_file
from semel.core.values import JSON, Media, Part, Text, printable

DOCUMENTS = {
    PDF: "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
_KINDS = frozenset({"image", "audio", "video"})


class Shown(Media, frozen=True, kw_only=True):
    """Media with their bytes as base64, as a request carries them."""

    data: str

    @property
    def is_image(self) -> bool:
        """Whether it is one that families show as a picture."""
        return self.media_type in IMAGES


class Written(Media, frozen=True, kw_only=True):
    """A text file with its text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class FileForm:
    """How one renderer of a family writes files. `text` writes a text part, `shown` a picture or a document.

    `written` writes a text file; `named_text` does where a family has no form of its own for it, and None is a renderer of the
    time when text files were documents like others.
    """

    takes: Takes
    text: Callable[[str], JSON]
    shown: Callable[[Shown], JSON]
    written: Callable[[Written, dict[str, int]], JSON] | None

    def parts(self, parts: Sequence[Part], loaded: Mapping[str, bytes], counted: dict[str, int]) -> list[JSON]:
        """Each part as the family writes it, or as a text that says what is not shown. Blank texts are left out (B24).

        `counted` are the pictures and documents that the message shows already; those that are added here are counted. Text
        files come last in that count, wherever they stand: they have another form where no place is left for a document.
        """
        found: list[JSON] = []
        verdicts = iter(
            self.takes.verdicts((part for part in parts if isinstance(part, Media) and not self._reads(part)), counted)
        )
        for part in parts:
            if isinstance(part, Text):
                found += [self.text(part.text)] if part.text.strip() else []
            elif self.written is not None and self._reads(part):
                found.append(self._text_file(part, loaded, counted, self.written))
            elif (verdict := next(verdicts)) is not None:
                found.append(self.text(missing(part, self.takes.why(verdict, part))))
            else:
                found.append(self.shown(_with_bytes(part, loaded)))
        return found

    def words_first(self, parts: Sequence[Part], loaded: Mapping[str, bytes]) -> tuple[list[str], list[Part]]:
        """What the parts of a result say in words, text files among them, and the others: for where a result is text alone."""
        words: list[str] = []
        others: list[Part] = []
        for part in parts:
            if isinstance(part, Text):
                words.append(part.text)
                continue
            item = read_text(part, loaded) if self._reads(part) else ""
            if isinstance(item, Written):
                words.append(named_text(item))
            else:
                others.append(part)
        return [text for text in words if text.strip()], others

    def _reads(self, media: Media) -> bool:
        """Whether a file is written as text."""
        return self.written is not None and is_text_kind(media.media_type)

    def _text_file(
        self,
        media: Media,
        loaded: Mapping[str, bytes],
        counted: dict[str, int],
        written: Callable[[Written, dict[str, int]], JSON],
    ) -> JSON:
        item = read_text(media, loaded)
        return self.text(missing(media, item)) if isinstance(item, str) else written(item, counted)


def read_text(media: Media, loaded: Mapping[str, bytes]) -> Written | str:
    """A text file with its text, or why it cannot be shown."""
    text = text_of_file(loaded[media.sha256])
    if text is None:
        return "it is not UTF-8"
    if not text.strip():
        return "it is blank"
    return Written(media_type=media.media_type, sha256=media.sha256, size_bytes=media.size_bytes, name=media.name, text=text)


def missing(media: Media, why: str = NO_FORM) -> str:
    """The text in the place of what cannot be sent."""
    return f"[{what_is(media)} is not shown: {why}]"


def named_text(item: Written) -> str:
    """A text file as text, between lines that say what it is."""
    what = what_is(item)
    end = "" if item.text.endswith("\n") else "\n"
    return f"[{what}]\n{item.text}{end}[end of {what}]"


def told(parts: Sequence[Part]) -> str:
    """Parts as text alone, for where a family takes nothing else."""
    lines = (part.text if isinstance(part, Text) else missing(part) for part in parts)
    return "\n".join(line for line in lines if line.strip())


def data_url(media: Shown) -> str:
    """The data as a URL."""
    return f"data:{media.media_type};base64,{media.data}"


def what_is(media: Media) -> str:
    """The kind, name and type of a file."""
    kind = media.media_type.partition("/")[0]
    name = f" {printable(media.name, limit=80)!r}" if media.name else ""
    return f"{kind if kind in _KINDS else 'document'}{name} of type {printable(media.media_type, limit=80)}"


def _with_bytes(media: Media, loaded: Mapping[str, bytes]) -> Shown:
    return Shown(
        media_type=media.media_type,
        sha256=media.sha256,
        size_bytes=media.size_bytes,
        name=media.name,
        data=base64.b64encode(loaded[media.sha256]).decode(),
    )
