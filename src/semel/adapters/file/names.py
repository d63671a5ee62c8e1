"""Session id <-> directory name (design 14): no id can leave its directory, collide with another or exceed a name (A1).

An id of 1 to 64 characters [a-z0-9_-] is its own directory name. Others escape each other byte as `=xx`. What would be
longer than 120, or look like a digest though it is none, is `=` and the sha256 of the id; its log says whose it is.
"""

import hashlib
import re

from semel.errors import BadSessionId

ID_BYTES_MAX = 200
_NAME_MAX = 120
_PLAIN = re.compile(r"[a-z0-9_-]{1,64}")
_ESCAPED = re.compile(r"(?:[a-z0-9_-]|=[0-9a-f]{2})+")
_DIGEST = re.compile(r"=[0-9a-f]{64}")


def directory_name(session: str) -> str:
    """Name of the directory of a session; raises BadSessionId before anything touches the disk."""
    try:
        raw = session.encode()
    except (UnicodeEncodeError, AttributeError):
        raise BadSessionId(f"{session!r} is no session id: it is not text") from None
    if not 0 < len(raw) <= ID_BYTES_MAX or b"\0" in raw:
        raise BadSessionId(f"a session id has 1 to {ID_BYTES_MAX} bytes of text; {session[:40]!a} has {len(raw)}")
    if _PLAIN.fullmatch(session):
        return session
    name = "".join(chr(byte) if chr(byte) in "abcdefghijklmnopqrstuvwxyz0123456789_-" else f"={byte:02x}" for byte in raw)
    if len(name) > _NAME_MAX or _DIGEST.fullmatch(name):
        return "=" + hashlib.sha256(raw).hexdigest()
    return name


def is_digest(name: str) -> bool:
    """Whether a directory name hides its id, which then only its log can tell."""
    return _DIGEST.fullmatch(name) is not None


def session_id(name: str) -> str | None:
    """The id that a directory name spells; None for a digest, or a directory that is none of ours."""
    if is_digest(name) or not _ESCAPED.fullmatch(name):
        return None
    try:
        session = re.sub(rb"=([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), name.encode()).decode()
        return session if directory_name(session) == name else None
    except (UnicodeDecodeError, BadSessionId):
        return None
