"""Files as content: what names one in a record, and what kind of file its bytes say that it is (M5, B18). Pure.

The first bytes outrank what somebody claims: a server refuses a picture of another kind than it is told, and then every request
of the session that shows it.
"""

import hashlib
from collections.abc import Sequence

from semel.core.values import Media, Part, Text, clean_text, printable

MEDIA_BYTES_MOST = 20 * 1024 * 1024
"""The largest file. As base64 it has 28 MB, and the smallest limit known of a whole request is 32 MB (Anthropic's, wire 1).

A family that takes less of one file says so in its own module, and its models read a text in the place of a larger one.
"""
TOGETHER_BYTES_MOST = MEDIA_BYTES_MOST
"""What the files of one message, or of one result, may have together, for the same reason. A whole conversation may have more."""
NAME_CHARS_MOST = 200

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)
_WEBP = "image/webp"
_TOLD_BY_BYTES = frozenset({_WEBP, *(kind for _, kind in _MAGIC)})
_OTHER_NAMES = {"image/jpg": "image/jpeg"}
_SUFFIXES = {
    "txt": "text/plain",
    "csv": "text/csv",
    "md": "text/markdown",
    "html": "text/html",
    "htm": "text/html",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "mp4": "video/mp4",
}
_UNKNOWN = "application/octet-stream"
_TEXT_APPLICATIONS = frozenset(
    f"application/{name}"
    for name in (
        *("json", "jsonl", "x-ndjson", "ndjson", "json5", "xml", "yaml", "x-yaml", "toml", "sql", "graphql"),
        *("javascript", "x-javascript", "typescript", "x-sh", "x-python", "x-httpd-php"),
    )
)
_TEXT_ENDINGS = ("+json", "+xml", "+yaml")


def media_of(content: bytes, media_type: str | None = None, name: str | None = None) -> Media:
    """What a record says of a file whose bytes are kept as a blob.

    Raises ValueError for an empty or a too large one, and TypeError where the content is no bytes, or a word about it no text.
    """
    for word in (name, media_type):
        if not isinstance(word, str | None):
            raise TypeError(f"the name and the media type of a file are texts, not {type(word).__name__}")
    shown = repr(printable(name, limit=80)) if name else "the file"
    if not isinstance(content, bytes):
        raise TypeError(f"the content of {shown} is not bytes but {type(content).__name__}")
    if not content:
        raise ValueError(f"{shown} is empty")
    if len(content) > MEDIA_BYTES_MOST:
        raise ValueError(f"{shown} has {len(content)} bytes; {MEDIA_BYTES_MOST} is the most of one file")
    return Media(
        media_type=kind_of(content, media_type, name),
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        name=printable(name, limit=NAME_CHARS_MOST) if name else None,
    )


def kind_of(content: bytes, claimed: str | None = None, name: str | None = None) -> str:
    """The media type: what the first bytes say, else what was claimed, else what the name ends with, else text or bytes.

    A claim is not believed where it names a kind whose first bytes are known and are not there.
    """
    for start, kind in _MAGIC:
        if content.startswith(start):
            return kind
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return _WEBP
    kind = printable(claimed or "", limit=100).lower()
    kind = _OTHER_NAMES.get(kind, kind)
    if kind and kind not in _TOLD_BY_BYTES:
        return kind
    suffix = (name or "").rpartition(".")[2].lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    return _UNKNOWN if text_of_file(content) is None else "text/plain"


def is_text_kind(media_type: str) -> bool:
    """Whether a file of this type is text, which a model reads as text: `text/*`, and the kinds of JSON, XML, YAML and source."""
    kind = base_of(media_type)
    return kind.startswith("text/") or kind in _TEXT_APPLICATIONS or kind.endswith(_TEXT_ENDINGS)


def base_of(media_type: str) -> str:
    """A media type without its parameters, such as `; charset=utf-8`."""
    return media_type.partition(";")[0].strip()


def text_of_file(content: bytes) -> str | None:
    """The text of a file, without the mark that some programs put first; None for what is no UTF-8, or holds a NUL.

    No other encoding is guessed: a wrong guess would show the model another text than the one that the file holds.
    """
    if b"\0" in content:
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def in_words(text: str, parts: Sequence[Part]) -> str:
    """A message or a result as a person reads it where nothing can be shown: files are named in brackets."""
    lines = (part.text if isinstance(part, Text) else _named(part) for part in parts)
    return "\n".join(line for line in (text, *lines) if line.strip()) if parts else text


def _named(media: Media) -> str:
    name = f"{clean_text(media.name)}, " if media.name else ""
    return f"[{name}{media.media_type}, {media.size_bytes} bytes]"
