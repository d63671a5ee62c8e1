"""`tail`: the records of a session, as they are and as they come."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import click

from semel import wiring
from semel.core.frame import Frame
from semel.faces.cli.carry import ground_of, ground_to_look_at
from semel.faces.cli.lines import live_line, record_line
from semel.faces.cli.options import json_option, state_option
from semel.faces.cli.output import json_line, one_line, shown, talk
from semel.faces.cli.remedies import command
from semel.faces.cli.verbs import verb
from semel.faces.following import Lull, follow_log
from semel.faces.views import frame_event, view_of
from semel.settings import read_settings

_EXIT_KEY = 130


@verb(
    "semel tail customer-42",
    "semel tail customer-42 --follow",
    "semel tail customer-42 --follow --live",
    "semel tail customer-42 --after 17 --follow --json | jq -c .record",
)
@click.argument("session")
@click.option("--after", metavar="N", type=click.IntRange(min=0), default=0, help="Only records with a seq above N.")
@click.option("-f", "--follow", is_flag=True, help="Go on until no run is open and nobody holds the session.")
@click.option("--live", is_flag=True, help="With --follow: show text as it arrives, too; it has no seq and may be lost.")
@click.option("--forever", is_flag=True, help="With --follow: wait for the next run, too.")
@state_option
@json_option
def tail(*, session: str, after: int, follow: bool, live: bool, forever: bool, state: str | None, as_json: bool) -> int:
    """Print the records of SESSION, which may be run by another process.

    Only what can never vanish is shown: each record once, in order, and with --after N exactly those behind N. A reader that
    remembers the last seq goes on from there. With --follow the process that runs the session tells of each record when it is
    durable; where that cannot be reached, the newest record may be shown only when the next one is written.
    """
    if follow:
        try:
            asyncio.run(_follow(session, after, state, forever=forever, live=live, as_json=as_json))
        except KeyboardInterrupt:
            return _EXIT_KEY  # the usual way to end it, which needs no words
        return 0
    store = ground_to_look_at(state).store
    view_of(store, session)  # refuses before a line is printed

    def take(frames: Sequence[Frame]) -> None:
        for frame in frames:
            _print(frame_event(frame), as_json=as_json)

    store.read(session, after, take=take)
    return 0


async def _follow(session: str, after: int, state: str | None, *, forever: bool, live: bool, as_json: bool) -> None:
    ground, logs = ground_of(state), wiring.store_of(read_settings(state))
    told = False
    events = follow_log(logs, session, ground.clock, control=ground.control, after=after, forever=forever, live=live)
    async with aclosing(events):
        async for event in events:
            if not isinstance(event, Lull):
                _print(event, as_json=as_json)
            elif event.stranded and not told:
                talk(f"nobody carries the open run; {command('resume', session)} goes on with it, and then so does this")
            told = isinstance(event, Lull) and event.stranded


def _print(event: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        json_line(event)
    elif "live" in event:
        shown(one_line(live_line(event)))
    else:
        shown(one_line(record_line(event)))
