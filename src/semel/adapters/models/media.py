"""Images and documents on the wire: which ones a family takes, and what stands in for those that it does not.

A request is never refused for one picture in its history: what a family has no form for is named in a text, so that the model
knows that something was there (B18).
"""

from collections.abc import Callable, Sequence

from semel.core.values import JSON, Document, Image, Shown, printable

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
PDF = "application/pdf"
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


def is_sendable(media: Shown, documents: frozenset[str]) -> bool:
    """Whether a family that takes these types of documents can send it."""
    return media.media_type in (IMAGES if isinstance(media, Image) else documents)


def missing(media: Shown) -> str:
    """The text in the place of what cannot be sent."""
    name = f" {printable(media.name, limit=80)!r}" if isinstance(media, Document) else ""
    kind = "image" if isinstance(media, Image) else "document"
    return f"[{kind}{name} of type {printable(media.media_type, limit=80)} is not shown: this model's API does not take it]"


def parts_of(
    media: Sequence[Shown], *, documents: frozenset[str], text: Callable[[str], JSON], part: Callable[[Shown], JSON]
) -> list[JSON]:
    """Each as the family writes it, or as a text that says what is not shown."""
    return [part(item) if is_sendable(item, documents) else text(missing(item)) for item in media]


def data_url(media: Shown) -> str:
    """The data as a URL."""
    return f"data:{media.media_type};base64,{media.data}"
