"""`doctor`, `reindex`, `repair`, `backup`, `restore`: looking after a state directory."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import msgspec

from semel import wiring
from semel.engine.park import park
from semel.errors import SemelError
from semel.faces.cli.options import json_option, state_option
from semel.faces.cli.output import json_line, one_line, shown, talk, tell_faults
from semel.faces.cli.remedies import command, with_state
from semel.faces.cli.verbs import verb
from semel.faces.listing import derived_anew
from semel.settings import Settings, read_settings

EXIT_PROBLEM, EXIT_DAMAGED = 1, 6
_MARKS = {"fine": "ok", "note": "note", "problem": "PROBLEM"}


@verb("semel doctor", "semel doctor --json")
@state_option
@json_option
def doctor(*, state: str | None, as_json: bool) -> int:
    """Look at the state directory: permissions, file system, feature floor, leases, leftovers, and whether each log is whole.

    Nothing is changed. Each finding says what to do about it; the exit code is 1 if something keeps a session from being used.
    """
    findings = [
        msgspec.structs.replace(finding, what=with_state(finding.what), advice=with_state(finding.advice))
        for finding in wiring.examine(read_settings(state))
    ]
    problems = sum(finding.weight == "problem" for finding in findings)
    if as_json:
        json_line({"problems": problems, "findings": [msgspec.to_builtins(finding) for finding in findings]})
        return EXIT_PROBLEM if problems else 0
    for finding in findings:
        shown(one_line(f"{_MARKS[finding.weight]:7} {finding.about}: {finding.what}"))
        if finding.advice:
            shown(one_line(f"        {finding.advice}"))
    return EXIT_PROBLEM if problems else 0


@verb("semel reindex")
@state_option
@json_option
def reindex(*, state: str | None, as_json: bool) -> int:
    """Derive index.db from the logs anew. It keeps itself up to date, so this is only needed where it is damaged.

    What it remembers of a session that cannot be read stays: it may be all that tells how long the log was. Such a session is
    named, and the exit code is 6; it is 1 where the index cannot be written to.
    """
    store = wiring.store_of(read_settings(state))
    store.refuse_copy()
    store.index.mend()
    derived = list(derived_anew(store))
    unreadable = {one.session: one.unreadable for one in derived if one.unreadable}
    unwritten = {one.session: one.unwritten for one in derived if one.unwritten}
    busy = [one.session for one in derived if one.busy]
    count = len(derived) - len(unreadable) - len(unwritten) - len(busy)
    if as_json:
        json_line({"sessions": count, "unreadable": unreadable, "unwritten": unwritten})
    else:
        shown(f"{count} sessions indexed")
        for session, why in unreadable.items():
            talk(f"{session} cannot be read, so what was remembered of it is kept: {with_state(why)}")
        for session, why in unwritten.items():
            talk(f"{session} could not be indexed: {with_state(why)}")
        for session in busy:
            talk(f"{session} is being written to; the next listing indexes it")
    tell_faults(store)
    return EXIT_DAMAGED if unreadable else EXIT_PROBLEM if unwritten else 0


@verb("semel repair customer-42", "semel repair customer-42 --accept-loss")
@click.argument("session", metavar="SESSION")
@click.option("--accept-loss", is_flag=True, help="Cut the log. What is behind the cut is lost to the session.")
@state_option
@json_option
def repair(*, session: str, accept_loss: bool, state: str | None, as_json: bool) -> int:
    """Say what would be lost if the damaged log of SESSION were cut where its damage starts; with --accept-loss, cut it.

    Try a backup first. The bytes that are cut are kept beside the log. An open run is closed: calls that may have been sent are
    unknown then, and wait in `semel inbox`. Look outside for what happened behind the cut before you send anything again.
    """
    settings = read_settings(state)
    loss = wiring.repair(settings, session) if accept_loss else wiring.assess(settings, session)
    cut_before = loss is None and wiring.store_of(settings).must_park(session)
    repaired = accept_loss and (loss is not None or cut_before)
    unknown = _parked(settings, session) if repaired else ()
    if as_json:
        found = None if loss is None else msgspec.to_builtins(loss)
        json_line({"session": session, "repaired": repaired, "loss": found, "unknown": unknown})
    elif cut_before and not accept_loss:
        closes = command("repair", session, "--accept-loss")
        shown(one_line(f"{session}: not damaged, but its open run has to be closed before it is used; {closes} does that"))
    elif cut_before:
        shown(one_line(f"{session}: its open run, if it had one, is closed; it can be used again"))
        _tell_unknown(session, unknown)
    elif loss is None:
        shown(one_line(f"{session}: not damaged, so there is nothing to repair"))
    else:
        verb_form = "was cut" if accept_loss else "would be cut"
        shown(one_line(f"{session}: {loss.reason}; {verb_form} at byte {loss.offset}, behind record {loss.kept_records}"))
        shown(f"  lost: {loss.lost_bytes} bytes, {loss.readable_records} readable records; record {loss.remembered} was durable")
        if accept_loss:
            shown(one_line(f"  the bytes are in {loss.kept_as}, beside {loss.path}"))
            _tell_unknown(session, unknown)
        else:
            shown(f"  nothing was changed; try a backup first, then {command('repair', session, '--accept-loss')}")
    if accept_loss:
        return 0
    return EXIT_DAMAGED if loss is not None else EXIT_PROBLEM if cut_before else 0


@verb("semel backup /mnt/backup/2026-01-01")
@click.argument("target", metavar="DIR", type=click.Path(path_type=Path))
@state_option
@json_option
def backup(*, target: Path, state: str | None, as_json: bool) -> int:
    """Copy every session, up to its last durable record, into the new directory DIR. Runs may go on meanwhile.

    A session that cannot be read, or a blob, is left out and named; the exit code is then 6.
    """
    copied = wiring.back_up(read_settings(state), target)
    lacking = {one.session: one.lacking for one in copied.sessions if one.lacking}
    if as_json:
        json_line(msgspec.to_builtins(copied))
    else:
        shown(one_line(f"{len(copied.sessions)} sessions copied to {target}"))
        _tell_left_out(copied.left_out, lacking, "left out")
    return EXIT_DAMAGED if copied.left_out or lacking else 0


@verb("semel restore /mnt/backup/2026-01-01 --state ./restored")
@click.argument("source", metavar="DIR", type=click.Path(path_type=Path))
@state_option
@json_option
def restore(*, source: Path, state: str | None, as_json: bool) -> int:
    """Put the backup in DIR in place of the state directory, which must be new or empty. Every byte is checked first.

    What happened after the backup is not in it. So every open run is closed, and each of its calls that may have been sent is
    unknown and waits in `semel inbox`: nothing is sent again by itself. What the backup had to leave out is named, and the exit
    code is then 6.
    """
    settings = read_settings(state)
    copied = wiring.restore(settings, source)
    lacking = {one.session: one.lacking for one in copied.sessions if one.lacking}
    unknown: dict[str, tuple[str, ...]] = {}
    failed: dict[str, str] = {}
    for one in copied.sessions:
        try:
            found = _parked(settings, one.session)
        except SemelError as error:
            failed[one.session] = str(error)
            continue
        if found:
            unknown[one.session] = found
    if as_json:
        told = {"restored": len(copied.sessions), "unknown": unknown, "failed": failed}
        json_line({**told, "left_out": copied.left_out, "lacking": lacking})
    else:
        shown(one_line(f"{len(copied.sessions)} sessions restored to {settings.state}"))
        for session, calls in unknown.items():
            _tell_unknown(session, calls)
        for session, why in failed.items():
            talk(f"{session} could not be closed: {with_state(why)}")
        _tell_left_out(copied.left_out, lacking, "the backup lacks")
    return EXIT_DAMAGED if failed or copied.left_out or lacking else 0


def _tell_left_out(left_out: Mapping[str, str], lacking: Mapping[str, Sequence[str]], verb_form: str) -> None:
    """Name the sessions that a backup could not copy, and the blobs."""
    for session, why in left_out.items():
        talk(f"{verb_form} {session}: {with_state(why)}")
    for session, blobs in lacking.items():
        for blob in blobs:
            talk(f"{verb_form} blob {blob[:16]} of {session}: it is missing or damaged; see {command('verify', session)}")


def _parked(settings: Settings, session: str) -> tuple[str, ...]:
    ground, store = wiring.parking_ground(settings)
    unknown = asyncio.run(park(ground, session))
    store.parked(session)
    return unknown


def _tell_unknown(session: str, calls: tuple[str, ...]) -> None:
    for call in calls:
        shown(one_line(f"  {session}: whether call {call[:12]} took effect is unknown; see {command('inbox')}"))
