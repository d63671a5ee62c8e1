"""`verify`: logs, byte by byte."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import click
import msgspec

from semel import wiring
from semel.core.features import KNOWN
from semel.core.header import Lineage, Proven
from semel.errors import BadSessionId, StoreError, UnknownSession
from semel.faces.cli.carry import tell_of_copy
from semel.faces.cli.options import json_option, state_option
from semel.faces.cli.output import json_line, one_line, shown, talk
from semel.faces.cli.verbs import verb
from semel.faces.reading import open_regular
from semel.faces.verify import LOG_NAME, BadBlob, Progress, Verdict, Witness, logs_below, no_witness, verify_log
from semel.settings import read_settings

EXIT_DAMAGED = 6
_LOOKS_MOST = 3  # what a live writer takes back while we read can look like damage for a moment


class LogFiles(Protocol):
    """What is asked of the logs of a state directory."""

    @property
    def path(self) -> Path:
        """The state directory."""

    def sessions(self) -> Sequence[str]:
        """All sessions."""

    def exists(self, session: str) -> bool:
        """Whether there is a log."""

    def read_status(self, session: str) -> bytes | None:
        """The status document."""

    def log_path(self, session: str) -> Path:
        """Where the log of a session is."""

    def owner(self, session: str) -> str | None:
        """Who holds it."""

    def witness(self, session: str, lineage: Lineage | None) -> int:
        """The highest record that the index calls durable."""

    def remembered(self, session: str) -> int:
        """The same of a session without a log, by whatever is beside it."""

    def removed(self) -> Mapping[str, int]:
        """Sessions that only the index remembers."""

    def session_in(self, name: str) -> str | None:
        """Whose a directory is."""

    @property
    def index_faults(self) -> Sequence[str]:
        """What was found damaged of the index."""


def _nobody() -> str | None:
    """Who holds a log of which no state directory knows."""
    return None


class Target(NamedTuple):
    """A log to check, whose it should be, and who knows how far it was durable, and who holds it."""

    path: Path
    session: str | None = None
    witness: Witness = no_witness
    owner: Callable[[], str | None] = _nobody

    def is_held(self) -> bool:
        """Whether somebody writes to the log, as far as can be told."""
        with suppress(StoreError):
            return self.owner() is not None
        return False


class Scope(NamedTuple):
    """What to check, and the state directory that it belongs to, of which it may be all."""

    targets: Sequence[Target]
    store: LogFiles | None = None
    whole: bool = False


@verb("semel verify", "semel verify customer-42", "semel verify backup/sessions/customer-42/wal.log --json")
@click.argument("target", metavar="[SESSION|PATH]", required=False)
@state_option
@json_option
def verify(*, target: str | None, state: str | None, as_json: bool) -> int:
    """Check the log of SESSION, the logs at PATH, or all logs: every frame, the tail, and the story that the records tell.

    The blobs that they name are checked, too, and the feature floor that they stand on. Nothing is changed. Damage is named
    by file, byte and reason, with what can still be read behind it; the exit code is then 6. A torn tail is no damage: it
    was never acknowledged, and the next open cuts it and keeps its bytes aside. What the index or a status document remembers
    counts, also where PATH is within a state directory: a log that ends before that is damaged.
    """
    scope = _scope(target, state)
    verdicts = list(_checked(scope.targets))
    floors = list(_floors(verdicts))
    for root in {wiring.root_of(Path(verdict.path)): None for verdict in verdicts}:
        if root is not None:
            tell_of_copy(root)
    bad = [verdict for verdict in verdicts if not verdict.good]
    if as_json:
        logs = [msgspec.to_builtins(verdict) for verdict in verdicts]
        found = [msgspec.to_builtins(floor) for floor in floors]
        json_line({"checked": len(verdicts), "damaged": len(bad), "logs": logs, "floors": found})
    else:
        for verdict in verdicts:
            _show(verdict)
        for floor in floors:
            _show_floor(floor)
        if not verdicts:
            talk("no logs here")
    asked = _tell_index(scope)
    return EXIT_DAMAGED if bad or any(floor.fault for floor in floors) or not asked else 0


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """The feature floor of a state directory. The logs need `lacking`, too, which the next open of each adds."""

    path: str
    names: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    fault: str | None = None


def _floors(verdicts: list[Verdict]) -> Iterator[Floor]:
    """The floor of each state directory that logs were checked of."""
    needed: dict[Path, set[str]] = {}
    for verdict in verdicts:
        root = wiring.root_of(Path(verdict.path))
        if root is not None:
            needed.setdefault(root, set()).update(verdict.features)
    for root, features in needed.items():
        where = str(wiring.floor_path(root))
        try:
            names = wiring.floor_names(root)
        except StoreError as error:
            yield Floor(path=where, fault=str(error))
            continue
        newer = sorted(names - KNOWN)
        fault = f"it names {', '.join(newer)}, which this build lacks" if newer else None
        yield Floor(path=where, names=tuple(sorted(names)), lacking=tuple(sorted(features - names)), fault=fault)


def _show_floor(floor: Floor) -> None:
    lacking = f"; {', '.join(floor.lacking)} will be added by the next open" if floor.lacking else ""
    names = ", ".join(floor.names) or "no feature"
    shown(one_line(f"floor: {floor.fault or f'names {names}{lacking}'}"))


def _tell_index(scope: Scope) -> bool:
    """Say what the index knows of sessions that have no directory, and what is wrong with it; False if it cannot be asked."""
    if scope.store is None:
        return True
    try:
        for session, head in scope.store.removed().items() if scope.whole else ():
            talk(f"{session} had {head} records, as the index remembers, and its directory was removed")
    except StoreError as error:
        talk(str(error))
        return False
    for fault in scope.store.index_faults:
        talk(fault)
    return True


def _scope(target: str | None, state: str | None) -> Scope:
    store = wiring.store_of(read_settings(state))
    if target is None:
        return Scope(list(_all(store)), store, whole=True)
    if _is_session(store, target):
        return Scope([_target_of(store, target)], store)
    if not _is_there(path := Path(target)):
        raise UnknownSession(f"{target[:200]!r} is no session here and no file; `semel ls` lists the sessions")
    if (path / "sessions").exists():
        there = wiring.store_of(read_settings(path))
        return Scope(list(_all(there)), there, whole=True)
    return _at(path)


def _at(path: Path) -> Scope:
    """The log at a path, or in it; if that is within a state directory, its index is asked, also about a log that is gone."""
    gone = path / LOG_NAME
    found = logs_below(path) or [gone]
    root = wiring.root_of(found[0])
    store = None if root is None else wiring.store_of(read_settings(root))
    session = None if store is None else store.session_in(found[0].parent.name)
    if store is None or session is None:
        return Scope([Target(log) for log in found if log != gone or _is_there(gone)])
    if found == [gone] and not _is_there(gone) and not store.remembered(session):
        return Scope([], store)
    return Scope([Target(log, None, _witness_of(store, session), partial(store.owner, session)) for log in found], store)


def _target_of(store: LogFiles, session: str) -> Target:
    return Target(store.log_path(session), session, _witness_of(store, session), partial(store.owner, session))


def _witness_of(store: LogFiles, session: str) -> Witness:
    """What the index knows of a log, or of what was there if its first line is lost."""
    return lambda lineage: store.remembered(session) if lineage is None else store.witness(session, lineage)


def _is_session(store: LogFiles, target: str) -> bool:
    """Whether a word is the id of a session, also of one whose log is gone; where nobody can look, unless it is a path."""
    try:
        return store.exists(target) or store.read_status(target) is not None or store.remembered(target) > 0
    except BadSessionId:
        return False
    except StoreError:
        return not _is_there(Path(target))


def _is_there(path: Path) -> bool:
    """Whether a path leads to anything, if only to a link."""
    try:
        path.lstat()
    except (OSError, ValueError):
        return False
    return True


def _all(store: LogFiles) -> Iterator[Target]:
    """Every session of a state directory, and every other log in it."""
    named = {store.log_path(session): session for session in store.sessions()}
    below = logs_below(store.path) if store.path.exists() else []
    yield from (_target_of(store, session) for session in named.values())
    yield from (Target(path) for path in below if path not in named)


def _checked(targets: Sequence[Target]) -> Iterator[Verdict]:
    """Check each log, with a bar on a terminal; it counts bytes, since logs differ."""
    total = sum(_size(target.path) for target in targets)
    with click.progressbar(length=total, label="verifying", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        for target in targets:
            look = _look_at(target)
            for _ in range(_LOOKS_MOST - 1):
                held = target.is_held()
                verdict = look(bar.update)
                if verdict.good or not (held or target.is_held()):
                    break
                bar.length = (bar.length or 0) + verdict.bytes
            else:
                verdict = look(bar.update)
            yield verdict


def _look_at(target: Target) -> Callable[[Progress], Verdict]:
    """One look at a log, which tells of its progress."""
    opener = wiring.opener(target.path) or open_regular
    return partial(verify_log, target.path, target.session, witness=target.witness, opener=opener)


def _size(path: Path) -> int:
    """How long a log is, as far as anybody can tell."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _show(verdict: Verdict) -> None:
    name = verdict.session or verdict.path
    blobs = f", {verdict.blobs} blobs" if verdict.blobs else ""
    facts = f"{verdict.records} records, {verdict.bytes:,} bytes{blobs}, head {verdict.head_digest[:16]}"
    if verdict.verdict == "clean":
        shown(one_line(f"{name}: clean, {facts}"))
        return
    if verdict.verdict == "torn":
        shown(one_line(f"{name}: torn at byte {verdict.offset}, which the next open cuts ({verdict.reason}); {facts}"))
        return
    if verdict.verdict == "unreadable":
        shown(one_line(f"{name}: unreadable: {verdict.reason}"))
        shown(one_line(f"  in {verdict.path}"))
        return
    if verdict.verdict == "incomplete":
        shown(one_line(f"{name}: incomplete: {verdict.reason}; {facts}"))
        for blob in verdict.bad_blobs:
            shown(_bad_blob(blob))
        return
    where = "" if verdict.offset is None else f" at byte {verdict.offset}, record {verdict.seq}"
    before = f"{verdict.records} records, {verdict.offset or 0:,} of {verdict.bytes:,} bytes, head {verdict.head_digest[:16]}"
    shown(one_line(f"{name}: {verdict.verdict}{where}: {verdict.reason}; good before it: {before}"))
    shown(one_line(f"  in {verdict.path}"))
    for proven in verdict.behind:
        shown(_behind(proven))
    if verdict.behind_records > len(verdict.behind):
        shown(f"  and {verdict.behind_records - len(verdict.behind)} more records behind those")


def _bad_blob(blob: BadBlob) -> str:
    why = "" if blob.why is None else f" ({blob.why})"
    what = f"blob {blob.name}, named by record {blob.seq}, is {blob.what}{why}"
    return one_line(f"  {what}; copy it from a backup into `blobs` beside the log")


def _behind(proven: Proven) -> str:
    whole = "whole" if proven.whole else "its line does not end where it says"
    return f"  behind it, byte {proven.offset}: record {proven.seq}, {proven.length} bytes of JSON, {whole}"
