"""`import`: start a session from a conversation that was held elsewhere."""

import asyncio
from pathlib import Path

import click

from semel.faces.cli.carry import ground_of
from semel.faces.cli.options import json_option, state_option
from semel.faces.cli.output import json_line, shown, talk
from semel.faces.cli.remedies import command
from semel.faces.cli.verbs import verb
from semel.faces.histories.supplying import FORMATS, read_history, supply_session


@verb(
    "semel import --format openai_chat conversation.json",
    "semel import --format anthropic --session customer-42 request.json",
    "semel send --session customer-42 --agent agent.toml 'Where were we?'",
    name="import",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--format", "format_", type=click.Choice(sorted(FORMATS)), required=True, help="Whose format the file is in.")
@click.option("--session", metavar="ID", help="The id of the new session; by default a generated one.")
@state_option
@json_option
def import_history(*, file: Path, format_: str, session: str | None, state: str | None, as_json: bool) -> int:
    """Start a session from the conversation in FILE: a request body, or its list of messages.

    The conversation has to be one that a provider would take: every call answered once, directly behind it. Else it is refused
    with the place and the rule, and nothing is written. No model is asked; `semel send` goes on from there.
    """
    foreign = read_history(file, format_)
    ground = ground_of(state)
    name = session or f"s-{ground.ids.fresh()[:16]}"
    head = asyncio.run(supply_session(ground, name, foreign, format_))
    for note in foreign.notes:
        talk(note)
    if as_json:
        json_line({"session": name, "messages": len(foreign.messages), "head_seq": head, "notes": list(foreign.notes)})
        return 0
    shown(name)
    talk(f"{len(foreign.messages)} messages; go on with {command('send', '--session', name, '--agent', 'FILE', 'PROMPT')}")
    return 0
