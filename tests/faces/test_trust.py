"""What a log, an agent file or an empty variable may not bring about."""

import json
from pathlib import Path

import pytest

from semel import Agent, Runtime
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.faces.agentref import with_model
from tests.engine.fakes import call, ground, script_file
from tests.faces.support import open_shop

CODE = """
import pathlib
pathlib.Path("LOADED").write_text("yes")
from semel import Agent
agent = Agent("clerk", model="scripted:script.json")
"""


def test_code_that_a_log_from_elsewhere_names_is_not_loaded_without_being_asked_for(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"text": "one"}, {"text": "two"})
    (tmp_path / "helper.py").write_text(CODE)
    assert shop.semel("run", "hi", "--agent", "helper:agent", "--session", "s").exit == 0
    log = shop.log("s")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:3]))  # an open run, as if its process had died
    (log.parent / "status.json").unlink()
    log.chmod(0o644)  # what a checkout makes of it
    (tmp_path / "LOADED").unlink()
    refused = shop.semel("resume", "s")
    assert refused.exit == 2
    assert "was not made here" in refused.err
    assert not (tmp_path / "LOADED").exists()
    assert shop.semel("resume", "s", "--agent", "helper:agent").exit == 0


def test_the_variable_of_a_key_is_not_taken_along_to_another_model() -> None:
    agent = Agent("a", model="openai_chat:m@https://models.example/v1", model_options={"key_env": "MINE", "max_output_tokens": 5})
    assert with_model(agent, "openai_chat:m@http://127.0.0.1:9/v1").model_options == {"max_output_tokens": 5}
    assert with_model(agent, None).model_options == agent.model_options


def test_a_key_of_an_open_run_goes_to_the_endpoint_that_it_was_configured_with_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from semel.core.values import Bundle
    from semel.faces.agent import _options_for

    agent = Agent("a", model="openai_chat:m@https://models.example/v1", model_options={"key_env": "MINE"})
    there = agent.model_port(SystemClock()).bundle
    elsewhere = Bundle(family=there.family, model=there.model, endpoint="http://127.0.0.1:9/v1", renderer=there.renderer)
    assert _options_for(agent, there, SystemClock()) == {"key_env": "MINE"}
    assert _options_for(agent, elsewhere, SystemClock()) == {}


def test_an_empty_key_is_no_key(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"text": "one"})
    refused = shop.semel("run", "hi", "--key", "", "--session", "s")
    assert refused.exit == 2
    assert "a key is printable text" in refused.err
    assert not shop.state.exists()


def test_a_session_whose_log_is_gone_is_listed_by_its_status(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.interrupted()
    shop.log("s").write_bytes(b"")
    assert list(FileStore(shop.state, SystemClock(), known=KNOWN).sessions()) == ["s"]
    assert shop.semel("inbox").out.strip() != "the inbox is empty"
    assert shop.semel("verify").exit == 6


@pytest.mark.anyio
async def test_a_resumed_run_gives_its_typed_output_too(tmp_path: Path) -> None:
    from dataclasses import dataclass

    @dataclass
    class Out:
        ok: bool

    from semel.adapters.memory.store import Medium

    medium = Medium()
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"calls": [call("submit_output", ok=True)]}), output=Out)
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        await (await runtime.session("s", agent=agent).send("hi", key="k")).result()
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        again = await runtime.session("s", agent=agent).send("hi", key="k")
        assert (await again.result()).output == Out(ok=True)


def test_a_demo_behind_a_proxy_variable_is_the_same_demo(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    done = shop.semel("demo", "--json", http_proxy="http://127.0.0.1:9", HTTP_PROXY="http://127.0.0.1:9")
    assert done.exit == 0, done.err
    found = json.loads(done.out.splitlines()[-1])
    assert (found["kills"], found["payments"], found["retry_loop_payments"], found["records"]) == (2, 1, 2, 20)
