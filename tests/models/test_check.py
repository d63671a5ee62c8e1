"""`semel models check`: one real request, and a line for whoever has to act (wrong key, wrong model, no network)."""

import json
import os
import subprocess
import sys

import pytest
from models_support import HandClock
from wire_support import WIRES

from semel.adapters.models.check import check_model
from semel.testing.formats import FORMATS
from semel.testing.model_server import ModelServer, serve_in_thread

WORKS = {
    "answers": [
        {
            "thinking": "Easy.",
            "text": "Hello there.",
            "calls": [{"name": "report", "args": {"word": "hello"}}],
            "usage": {"input": 9, "output": 3},
            "chunk": 4,
        }
    ]
}


@pytest.mark.anyio
@pytest.mark.parametrize("family", sorted(WIRES))
async def test_a_model_that_works_is_told_so_point_by_point(family):
    async with ModelServer(WORKS) as server:
        found = await check_model(f"{family}:m@{server.url}", clock=HandClock(), environ={})
        sent = [json.loads(received.body) for received in server.requests]
    told = {finding.what: finding.works for finding in found}
    counts = True if FORMATS[family].count_path else None
    assert told == {
        "answers": True,
        "streams": True,
        "calls tools": True,
        "reports usage": True,
        "keeps state": True,
        "counts tokens": counts,
    }
    assert len(sent) == 1 + bool(counts)


FAULTS = [
    ({"status": 401}, "give the right key"),
    ({"status": 403}, "ask for access"),
    ({"status": 404}, "check the model's name"),
    ({"status": 429, "headers": {"retry-after": "9"}}, "wait, then try again"),
    (
        {"status": 402, "body": {"type": "error", "error": {"type": "billing_error", "message": "Too low."}}},
        "Too low; add credit",
    ),
    ({"status": 503}, "try again later"),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("fault", "told"), FAULTS)
async def test_a_model_that_does_not_is_one_line_with_the_remedy(fault, told):
    script = {"answers": [{"fault": {"kind": "status", "times": None, **fault}}]}
    async with ModelServer(script) as server:
        found = await check_model(f"anthropic_messages:m@{server.url}", clock=HandClock(), environ={})
        assert len(server.requests) == 1
    assert [finding.works for finding in found] == [False]
    assert told in found[0].seen
    assert ".;" not in found[0].seen
    assert "\n" not in found[0].seen


@pytest.mark.anyio
async def test_what_no_server_answered_says_itself_what_to_do():
    missing = await check_model("anthropic:claude-opus-5-5", clock=HandClock(), environ={})
    assert missing[0].seen == "no key for api.anthropic.com: set ANTHROPIC_API_KEY"
    async with ModelServer(WORKS) as server:
        url = server.url
    gone = await check_model(f"gemini:m@{url}", clock=HandClock(), environ={})
    assert gone[0].seen.count("check the address") == 1


def semel(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path), **environ}
    command = [sys.executable, "-m", "semel", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_the_command_line_shows_what_works_and_exits_with_0_or_1():
    with serve_in_thread(WORKS) as server:
        done = semel("models", "check", f"gemini:m@{server.url}", "--json")
        assert done.returncode == 0, done.stderr
        assert {json.loads(line)["what"] for line in done.stdout.splitlines()} >= {"answers", "calls tools"}
        url = server.url
    done = semel("models", "check", f"gemini:m@{url}")
    assert done.returncode == 1
    assert "no connection" in done.stdout
    done = semel("models", "check", "anthropic:claude-opus-5-5")
    assert (done.returncode, "set ANTHROPIC_API_KEY" in done.stdout) == (1, True)
    done = semel("models", "check", "antropic:claude-opus-5-5")
    assert (done.returncode, "did you mean anthropic:" in done.stderr) == (2, True)


def test_the_command_line_lists_the_rows_of_ones_own_too(tmp_path):
    (tmp_path / "m.toml").write_text('[house]\nfamily = "gemini"\nbase_url = "https://x.example"\nexample = "house:m"\n')
    done = semel("models", "--json", SEMEL_MODELS=str(tmp_path / "m.toml"))
    names = [json.loads(line)["provider"] for line in done.stdout.splitlines()]
    assert names[-1] == "house"
    assert len(names) == 14
