"""What a server answered, as what a tool returns: text, and files where it holds some."""

import binascii

import msgspec

from semel.core.outcomes import describe
from semel.core.values import JSON, clean_text
from semel.errors import ToolFailed
from semel.ports.tool import File


class _Resource(msgspec.Struct, frozen=True):
    uri: str = ""
    mimeType: str | None = None  # noqa: N815 - the protocol's own name
    text: str | None = None
    blob: str | None = None


class _Block(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    data: str = ""
    mimeType: str | None = None  # noqa: N815 - the protocol's own name
    uri: str = ""
    resource: _Resource | None = None


class _Result(msgspec.Struct, frozen=True):
    content: list[_Block] = []
    isError: bool | None = None  # noqa: N815 - the protocol's own name
    structuredContent: msgspec.Raw = msgspec.Raw()  # noqa: N815 - the protocol's own name


def shown(result: msgspec.Raw) -> JSON:
    """The value for the model. Raises ToolFailed for an error, and for what is no result: the tool did run (T19)."""
    try:
        found = msgspec.json.decode(result, type=_Result)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ToolFailed(f"the tool ran, but its result is not what MCP says: {describe(error)}") from None
    parts = [part for block in found.content if (part := _part(block)) != ""]
    if not parts and bytes(found.structuredContent) not in (b"", b"null"):
        parts = [clean_text(bytes(found.structuredContent).decode())]
    if found.isError:
        raise ToolFailed("the tool reports an error", output="\n".join(_in_words(part) for part in parts))
    if any(isinstance(part, File) for part in parts):
        return parts
    return "\n".join(str(part) for part in parts)


def _part(block: _Block) -> str | File:
    match block:
        case _Block(type="text"):
            return clean_text(block.text)
        case _Block(type="image" | "audio"):
            return _file(block.data, block.mimeType)
        case _Block(type="resource", resource=_Resource() as resource):
            return _file(resource.blob, resource.mimeType) if resource.blob else clean_text(resource.text or "")
        case _Block(type="resource_link"):
            return clean_text(block.uri)
        case _:
            return f"[a part of the unknown type {clean_text(block.type[:40])!r}]"


def _file(data: str, media_type: str | None) -> str | File:
    try:
        return File(binascii.a2b_base64(data), media_type=None if media_type is None else clean_text(media_type))
    except (binascii.Error, ValueError):
        return "[a file that is not base64]"


def _in_words(part: str | File) -> str:
    return part if isinstance(part, str) else f"[a file of {len(part.content)} bytes]"
