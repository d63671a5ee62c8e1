"""A mark on a session whose log was repaired or restored and whose open run is not closed yet.

What happened behind the cut, or after the copy, is not in such a log: going on with it could send something again. So nobody
opens it but who closes its run, also if the process that cut or copied it died before it could.
"""

import os
from contextlib import suppress

from semel.adapters.file.root import Place, naming, open_private
from semel.errors import NotParked

NAME = "parking"


def mark(place: Place, directory: int) -> None:
    """Put the mark there; it is durable once the caller has synced the directory."""
    place.disk.close(open_private(place.disk, NAME, directory, os.O_WRONLY | os.O_CREAT, place.path / NAME))


def is_marked(place: Place) -> bool:
    """Whether the session may only be opened to close its run."""
    with naming("look at", place.path / NAME), suppress(FileNotFoundError):
        place.disk.status_of(place.path / NAME)
        return True
    return False


def refuse_marked(place: Place) -> None:
    """Raise NotParked for a session with the mark."""
    if is_marked(place):
        raise NotParked(
            f"session {place.session!r} was restored or repaired, but its open run is not closed yet. "
            f"`semel repair {place.session} --accept-loss` closes it. Nothing was changed."
        )


def clear(place: Place, directory: int) -> None:
    """Take the mark away, durably."""
    with suppress(FileNotFoundError):
        place.disk.unlink(NAME, directory)
    place.disk.sync_directory(directory)
