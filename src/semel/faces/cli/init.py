"""`init`: an agent file to start from."""

from pathlib import Path

import click

from semel.errors import BadSettings
from semel.faces.agentfile import FILE_NAME
from semel.faces.cli.options import json_option
from semel.faces.cli.output import json_line, talk
from semel.faces.cli.verbs import verb

MODEL = "openai:gpt-5"
TEMPLATE = """\
# An agent of semel. `semel run "What day is it?"` finds it here.

name = "assistant"
model = "{model}"            # `semel models` lists providers
instructions = "You are helpful and brief."     # or "file:instructions.md"
limits = {{ steps = 40 }}                         # and tokens, wall_seconds, cost = "1.00 USD"

# A tool is a command. The model fills in {{arguments}}; there is no shell.
[tools.today]
description = "Today's date."
command = ["date", "+%A, %d %B %Y"]
effect = "read"                  # after a crash: "read" runs again, "idempotent" under the same key, "once" never

# [tools.refund]
# description = "Refund an order."
# command = ["./refund", "{{order_id}}", "{{cents}}", "--idempotency-key", "{{call_key}}"]
# args = {{ order_id = "string", cents = "integer" }}
# reconcile = ["./refund-status", "{{call_key}}"] # exit 0: it happened; 1 and no word on stderr: never; else: unknown
# env = ["SHOP_TOKEN"]           # the variables that it gets beside PATH, HOME and the like
# timeout = 30

# [tools.git]                    # an MCP server: what it lists is offered as mcp__git__...
# mcp = ["mcp-server-git", "--repository", "."]
# effects = {{ git_log = "read" }} # every other tool of it is "once"; `trust_hints = true` believes what it says of itself
"""


@verb("semel init", "semel init --model ollama:qwen3:30b")
@click.option("--model", metavar="NAME", default=MODEL, show_default=True, help="The model; see `semel models`.")
@json_option
def init(*, model: str, as_json: bool) -> int:
    """Write agent.toml into this directory. A file that is there is left alone."""
    path = Path(FILE_NAME).absolute()
    if '"' in model or "\\" in model or not model.isprintable():
        raise BadSettings(f"{model!r} is no name of a model")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(model=model))
    except FileExistsError:
        raise BadSettings(f"{path} is there already; it was left alone") from None
    except OSError as error:
        raise BadSettings(f"{path} cannot be written: {error.strerror}") from None
    if as_json:
        json_line({"created": str(path), "model": model})
    else:
        talk(f'wrote {path}; next: semel run "What day is it?"')
    return 0
