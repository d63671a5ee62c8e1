"""`semel demo`: the promise in ten seconds."""

import shutil
import tempfile
from pathlib import Path

import click

from semel.faces.cli.demo_play import SESSION, Findings, play, stage


@click.command(
    epilog="Examples: semel demo; semel demo --verbose for the log's own lines; semel demo --keep to look around afterwards."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line.")
@click.option("--verbose", is_flag=True, help="Print the lines of the log, too.")
@click.option("--keep", is_flag=True, help="Leave the directory with the state, the ledger and the requests.")
def demo(*, as_json: bool, verbose: bool, keep: bool) -> None:
    """Kill an agent twice while it pays an invoice, resume it, and count the payments.

    A scripted agent, served over real HTTP, is ended by SIGKILL while its model is answering, and again after a payment and
    before its record. Nothing is paid twice, and the call whose outcome nobody recorded waits for a person.
    """
    place = Path(tempfile.mkdtemp(prefix="semel-demo-"))
    try:
        with stage(place) as on:
            findings = play(on, lambda line: click.echo(line, err=as_json))
        if verbose:
            _show_log(findings, err=as_json)
        if keep:
            click.echo(f"Kept: {place}", err=as_json)
        if as_json:
            from msgspec import json

            click.echo(json.encode(findings).decode())
    except BaseException:
        click.echo(f"What the demo left is in {place}", err=True)
        raise
    if not good(findings):
        click.echo(f"This is not what semel promises; what the demo left is in {place}", err=True)
        raise SystemExit(1)
    if not keep:
        shutil.rmtree(place, ignore_errors=True)


def good(findings: Findings) -> bool:
    """Whether the play came to what semel promises."""
    return (
        findings.payments == 1
        and findings.request_identical
        and findings.resume_exit == 3
        and findings.state == "interrupted"
        and findings.next_send_state == "completed"
    )


def _show_log(findings: Findings, *, err: bool) -> None:
    """The log as it is on disk: each line's header fields, and its JSON."""
    click.echo(f"\nThe log, {findings.records} records:", err=err)
    log = Path(findings.state_dir) / "sessions" / SESSION / "wal.log"
    for line in log.read_text(encoding="utf-8").splitlines():
        words = line.split(" ", 10)
        click.echo(f"  seq {words[1]:>2}  fence {words[3]}  synced {words[4]:>2}  left {words[5]}  {words[10][:110]}", err=err)
