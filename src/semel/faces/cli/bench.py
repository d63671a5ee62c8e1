"""`bench`: what semel costs on this disk, beside the raw floor of the same minute."""

import itertools
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from semel.faces.cli.options import json_option, state_option
from semel.faces.cli.output import json_line, table
from semel.faces.cli.verbs import verb
from semel.settings import read_settings

NAMES = ("S", "C", "G", "R", "Sz")


@verb("semel bench", "semel bench S C --state DIR", "semel bench G --turns 500 --json")
@click.argument("measures", nargs=-1, type=click.Choice(NAMES, case_sensitive=False))
@click.option("--turns", type=click.IntRange(min=2), help="Turns of a run; by default what suits the measure.")
@click.option("--rounds", type=click.IntRange(min=1), help="How often to measure; by default what suits the measure.")
@state_option
@json_option
def bench(*, measures: Sequence[str], turns: int | None, rounds: int | None, state: str | None, as_json: bool) -> int:
    """Measure semel on the disk of a state directory, in a directory of its own there that is removed again.

    S is one run of 50 turns; C is 64 runs at once; G is what a turn costs late in a run of 2,000; R is to open such a log; Sz is
    the bytes of a turn. Each stands beside the raw floor of the same minute: the same bytes with the same number of syncs, or the
    same log read, hashed and decoded. Without a name, all are measured, which takes about a minute.
    """
    from semel.faces.bench.figures import COLUMNS
    from semel.faces.bench.measures import MEASURES, Counts

    place = Path(read_settings(state).state)
    made = [level for level in (place, *place.parents) if not level.exists()]
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    counts = Counts(turns=turns, rounds=rounds)
    try:
        figures = itertools.chain.from_iterable(MEASURES[name](place, counts) for name in measures or NAMES)
        if as_json:
            for found in figures:
                json_line(found.as_json())
        else:
            table(COLUMNS, [found.as_row() for found in figures])
    finally:
        with suppress(OSError):  # somebody else has put something there meanwhile
            for level in made:
                level.rmdir()
    return 0
