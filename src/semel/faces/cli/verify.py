"""`verify`: logs, byte by byte."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import msgspec

from semel import wiring
from semel.core.features import KNOWN
from semel.core.header import Proven
from semel.errors import StoreError, UnknownSession
from semel.faces.cli.carry import tell_of_copy
from semel.faces.cli.options import json_option, state_option
from semel.faces.cli.output import json_line, one_line, shown, talk
from semel.faces.cli.verbs import verb
from semel.faces.verify import BadBlob, Verdict, logs_below, no_witness, verify_log
from semel.settings import read_settings

EXIT_DAMAGED = 6
_LOOKS_MOST = 3  # what a live writer takes back while we read can look like damage for a moment
Target = tuple[Path, str | None]


@verb("semel verify", "semel verify customer-42", "semel verify backup/sessions/customer-42/wal.log --json")
@click.argument("target", metavar="[SESSION|PATH]", required=False)
@state_option
@json_option
def verify(*, target: str | None, state: str | None, as_json: bool) -> int:
    """Check the log of SESSION, the logs at PATH, or all logs: every frame, the tail, and the story that the records tell.

    The blobs that they name are checked, too, and the feature floor that they stand on. Nothing is changed. Damage is named
    by file, byte and reason, with what can still be read behind it; the exit code is then 6. A torn tail is no damage: it
    was never acknowledged, and the next open cuts it and keeps its bytes aside.
    """
    verdicts = list(_checked(list(_targets(target, state)), state))
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
    return EXIT_DAMAGED if bad or any(floor.fault for floor in floors) else 0


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


def _targets(target: str | None, state: str | None) -> Iterator[Target]:
    store = wiring.store_of(read_settings(state))
    if target is None:
        named = {store.log_path(session): session for session in store.sessions()}
        gone = [path for path in logs_below(store.path) if path not in named]
        yield from [*named.items(), *((path, None) for path in gone)]
    elif store.exists(target):
        yield store.log_path(target), target
    elif Path(target).exists():
        yield from ((path, None) for path in logs_below(Path(target)))
    else:
        raise UnknownSession(f"{target!r} is no session here and no file; `semel ls` lists the sessions")


def _checked(targets: list[Target], state: str | None) -> Iterator[Verdict]:
    """Check each log, with a bar on a terminal; it counts bytes, since logs differ."""
    store = wiring.store_of(read_settings(state))
    total = sum(path.stat().st_size for path, _ in targets if path.exists())
    with click.progressbar(length=total, label="verifying", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        for path, session in targets:
            witness = no_witness if session is None else partial(store.witness, session)
            verdict = verify_log(path, session, bar.update, witness)
            for _ in range(_LOOKS_MOST - 1):
                verdict = verdict if verdict.good or session is None else verify_log(path, session, witness=witness)
            yield verdict


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
    return f"  blob {blob.name}, named by record {blob.seq}, is {blob.what}; copy it from a backup into `blobs` beside the log"


def _behind(proven: Proven) -> str:
    whole = "whole" if proven.whole else "its line does not end where it says"
    return f"  behind it, byte {proven.offset}: record {proven.seq}, {proven.length} bytes of JSON, {whole}"
