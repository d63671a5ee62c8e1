"""`semel simulate`: semel itself in the simulated world of `semel.testing`, by seed."""

import click

from semel.faces.agent import Agent, Limits
from semel.faces.api import Runtime
from semel.testing.world import Tally, World, run_seeds, told

EXIT_BROKEN = 1


def build(world: World) -> tuple[Agent[str], Runtime]:
    """An agent of the world's own cast, and a runtime for one life of it."""
    limits = Limits(steps=6, result_bytes=2000, parallel_calls=3)
    agent: Agent[str] = Agent("cast", model=world.model(), instructions="Work.", tools=world.tools(), limits=limits)
    return agent, Runtime(agents=[agent], ground=world.ground)


@click.command(epilog="Examples: semel simulate 17 for the story of one seed; semel simulate 0 --count 1000 for figures.")
@click.argument("seed", type=int)
@click.option("--count", type=click.IntRange(min=1), help="Run so many seeds from SEED on, and print figures.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def simulate(*, seed: int, count: int | None, as_json: bool) -> int:
    """Run the whole engine in a simulated world, whose every fault SEED decides, and hold it against what semel promises.

    Disks lose power, processes die, tools and models fail in every way; all in one thread and on virtual time, so that a seed
    always runs alike. Nothing is written here. Exit code 1 says that a promise was broken.
    """
    if count is None and not as_json:
        report = World(seed, build).run()
        for line in told(report):
            click.echo(line)
        return EXIT_BROKEN if report.breaches else 0
    tally = run_seeds(range(seed, seed + (count or 1)), build)
    if as_json:
        from msgspec import json

        click.echo(json.encode(tally).decode())
    else:
        _show(tally)
    return EXIT_BROKEN if tally.broken else 0


def _show(tally: Tally) -> None:
    click.echo(
        f"{tally.worlds} worlds, {tally.lives} lives, {tally.seconds / 3600:.0f} virtual hours; "
        f"{tally.turns} turns, {tally.done} of them done"
    )
    for title, counts in (("faults", tally.fired), ("checks", tally.checked)):
        click.echo(f"{title}: " + ", ".join(f"{name} {counts[name]}" for name in sorted(counts)))
    for seed, what in tally.broken.items():
        click.echo(f"BROKEN by seed {seed}: {what}")
