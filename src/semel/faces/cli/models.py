"""`models`, `mock`: which models there are, whether one works, and one that follows a script."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from semel import wiring
from semel.errors import BadSettings
from semel.faces.cli.options import json_option
from semel.faces.cli.output import json_line, shown, table
from semel.faces.cli.verbs import Verb, verb, verb_group

_WORKS = {True: "yes", False: "no", None: "not seen"}


@verb_group("semel models", "semel models --json", "semel models check openai:gpt-5")
@json_option
@click.pass_context
def models(ctx: click.Context, *, as_json: bool) -> int:
    """List the providers, with an example of a name, where they are served, the variable of their key, window and price.

    A window is in tokens, a price in money for a million of them, read and written. semel ships neither, since none was checked:
    what nobody told it is unknown, and a limit on cost needs a price. Rows of your own add them, in the file that SEMEL_MODELS
    names, or in semel/models.toml in ~/.config. Any other server is named FAMILY:MODEL@https://host/v1, by the wire family that
    it speaks, and a file of answers scripted:FILE.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    rows = wiring.providers()
    if as_json:
        for row in rows:
            there = row["key"] is None or bool(os.environ.get(row["key"], "").strip())
            json_line({**row, "key_is_set": there})
        return 0
    table(("provider", "model", "served at", "key", "window", "price"), [cells for row in rows for cells in _cells(row)])
    shown("What is unknown you can add in a row of your own; see `semel models --help`.")
    shown(f"FAMILY:MODEL@https://host/v1 is any other server, where FAMILY is {', '.join(wiring.families())}.")
    shown("scripted:FILE is a file of answers.")
    return 0


def _cells(row: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The lines of a provider: its example, and the other models that its row lists."""
    named = [f"{row['provider']}:{model}" for model in row["models"]]
    for spec in dict.fromkeys([row["example"] or f"{row['provider']}:MODEL", *named]):
        known = row["models"].get(spec.partition(":")[2], {})
        window, price = known.get("context"), known.get("price")
        told = "unknown" if row["cost_currency"] is None else f"told by the server, in {row['cost_currency']}"
        paid = told if price is None else f"{price['input']} and {price['output']} {price['currency']}"
        yield row["provider"], spec, row["url"], row["key"] or "none", "unknown" if window is None else f"{window:,}", paid


@models.command(cls=Verb, examples=("semel models check anthropic:claude-opus-5-5", "semel models check ollama:qwen3:30b"))
@click.argument("spec")
@json_option
def check(*, spec: str, as_json: bool) -> int:
    """Make one real request to the model SPEC, and say what works. It costs what a very short answer costs."""
    found = asyncio.run(wiring.model_checked(spec))
    if as_json:
        for what, works, seen in found:
            json_line({"what": what, "works": works, "seen": seen})
    else:
        table(("what", "works", "seen"), [(what, _WORKS[works], seen) for what, works, seen in found])
    return 0 if found[0][1] else 1


@verb("semel mock script.json", "semel mock script.json --port 8080 --journal requests.jsonl")
@click.argument("script", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; by default a free one.")
@click.option("--journal", type=click.Path(path_type=Path, dir_okay=False), help="Append each request body to this file.")
@click.option("--format", "family", type=click.Choice(wiring.families()), help="Speak this wire family only.")
def mock(*, script: Path, port: int, journal: Path | None, family: str | None) -> int:
    """Serve the answers of SCRIPT as a model on 127.0.0.1, until it is stopped, in the wire format that a client asks for.

    The first line on stdout is the base URL; use it as FAMILY:NAME@URL.
    """
    from semel.testing import model_server

    if not script.is_file():
        raise BadSettings(f"there is no script at {script}")
    if journal is not None:
        try:
            journal.open("ab").close()
        except OSError as error:
            raise BadSettings(f"the journal {journal} cannot be written: {error.strerror}") from None
    given = [str(script), "--port", str(port)]
    given += [] if journal is None else ["--journal", str(journal)]
    given += [] if family is None else ["--format", family]
    model_server.main(given)
    return 0
