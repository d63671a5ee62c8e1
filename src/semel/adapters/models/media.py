"""Images and documents on the wire: which ones a family takes, and what stands in for those that it does not.

A request is never refused for one picture in its history: what a family has no form for is named in a text, so that the model
knows that something was there (B18).
"""

import base64
from collections.abc import Callable, Mapping, Sequence

from semel.core.media import MEDIA_BYTES_MOST
from semel.core.values import JSON, Media, Part, Text, printable

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
_KINDS = frozenset({"image", "audio", "video"})
_NO_FORM = "this model's API does not take it"


class Shown(Media, frozen=True, kw_only=True):
    """Media with their bytes as base64, as a request carries them."""

    data: str

    @property
    def is_image(self) -> bool:
        """Whether it is one that families show as a picture."""
        return self.media_type in IMAGES


def missing(media: Media, why: str = _NO_FORM) -> str:
    """The text in the place of what cannot be sent."""
    kind = media.media_type.partition("/")[0]
    name = f" {printable(media.name, limit=80)!r}" if media.name else ""
    what = f"{kind if kind in _KINDS else 'document'}{name} of type {printable(media.media_type, limit=80)}"
    return f"[{what} is not shown: {why}]"


def parts_of(
    parts: Sequence[Part],
    loaded: Mapping[str, bytes],
    *,
    documents: frozenset[str],
    text: Callable[[str], JSON],
    shown: Callable[[Shown], JSON],
    image_bytes_most: int = MEDIA_BYTES_MOST,
) -> list[JSON]:
    """Each part as the family writes it, or as a text that says what is not shown. Blank texts are left out (B24).

    `image_bytes_most` is the largest picture that the family takes, in bytes of the file.
    """
    found: list[JSON] = []
    for part in parts:
        if isinstance(part, Text):
            found += [text(part.text)] if part.text.strip() else []
        elif part.media_type in IMAGES and part.size_bytes > image_bytes_most:
            why = f"it has {part.size_bytes} bytes, and this model's API takes pictures of at most {image_bytes_most}"
            found.append(text(missing(part, why)))
        elif part.media_type in IMAGES or part.media_type in documents:
            found.append(shown(_with_bytes(part, loaded)))
        else:
            found.append(text(missing(part)))
    return found


def told(parts: Sequence[Part]) -> str:
    """Parts as text alone, for where a family takes nothing else."""
    lines = (part.text if isinstance(part, Text) else missing(part) for part in parts)
    return "\n".join(line for line in lines if line.strip())


def data_url(media: Shown) -> str:
    """The data as a URL."""
    return f"data:{media.media_type};base64,{media.data}"


def _with_bytes(media: Media, loaded: Mapping[str, bytes]) -> Shown:
    return Shown(
        media_type=media.media_type,
        sha256=media.sha256,
        size_bytes=media.size_bytes,
        name=media.name,
        data=base64.b64encode(loaded[media.sha256]).decode(),
    )
