"""`models`, `mock`: which models there are, and one that follows a script."""

import os
from pathlib import Path

import click

from semel import wiring
from semel.errors import BadSettings
from semel.faces.cli.options import json_option
from semel.faces.cli.output import json_line, shown, table
from semel.faces.cli.verbs import verb


@verb("semel models", "semel models --json")
@json_option
def models(*, as_json: bool) -> int:
    """List the providers, with an example of a name, where they are served, and the variable that holds their key.

    Any other server that speaks the chat completions API is named openai_chat:MODEL@https://host/v1, and a file of answers
    scripted:FILE.
    """
    rows = wiring.providers()
    if as_json:
        for name, example, url, key in rows:
            there = key is None or bool(os.environ.get(key, "").strip())
            json_line({"provider": name, "example": example, "url": url, "key": key, "key_is_set": there})
        return 0
    table(("provider", "example", "served at", "key"), [(name, example, url, key or "none") for name, example, url, key in rows])
    shown("openai_chat:MODEL@https://host/v1 is any other server, scripted:FILE a file of answers.")
    return 0


@verb("semel mock script.json", "semel mock script.json --port 8080 --journal requests.jsonl")
@click.argument("script", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1; by default a free one.")
@click.option("--journal", type=click.Path(path_type=Path, dir_okay=False), help="Append each request body to this file.")
def mock(*, script: Path, port: int, journal: Path | None) -> int:
    """Serve the answers of SCRIPT as a chat completions API on 127.0.0.1, until it is stopped.

    The first line on stdout is the base URL; use it as openai_chat:NAME@URL.
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
    model_server.main(given if journal is None else [*given, "--journal", str(journal)])
    return 0
