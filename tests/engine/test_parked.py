"""A person is told that a session waits: once for each waiting, beside the run, and again where nobody was told."""

import asyncio
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from msgspec.structs import replace

from semel import Agent, Held, Interrupted, Paused, Runtime
from semel.adapters.parked.once import Once
from semel.core.values import JSON
from semel.engine.resume import Ground
from semel.errors import BadSettings, StoreError
from semel.ports.parked import Parked
from semel.ports.tool import Call
from semel.settings import PARKED_VARIABLE, read_settings
from semel.wiring import ground_of
from tests.engine.fakes import call, counting, events_of, script_file
from tests.engine.slow import disk_ground
from tests.engine.test_held_calls import holding

pytestmark = pytest.mark.anyio


class Pager:
    """Remembers what it was told; fails as long as it is told to."""

    def __init__(self) -> None:
        self.told: list[Parked] = []
        self.fails = False

    async def tell(self, parked: Parked) -> None:
        if self.fails:
            raise StoreError("nobody answers")
        self.told.append(parked)


def paged(tmp_path: Path, pager: Pager) -> Ground:
    from dataclasses import replace as with_hook

    return with_hook(disk_ground(tmp_path / "s"), parked=Once(pager, tmp_path / "told"))


def losing(tmp_path: Path) -> Agent[str]:
    async def lose(_arguments: dict[str, JSON], _call: Call[object]) -> str:
        raise TimeoutError

    model = script_file(tmp_path / "m.json", {"calls": [call("pay", n=1)]}, {"text": "done"})
    return Agent("a", model=model, tools=[counting("pay", behaviour=lose)])


async def test_a_person_is_told_of_an_unknown_call_once_also_over_restarts(tmp_path: Path) -> None:
    pager, agent = Pager(), losing(tmp_path)
    for _ in range(3):
        async with Runtime(agents=[agent], ground=paged(tmp_path, pager)) as runtime:
            run = await runtime.session("s", agent=agent).send("go", key="k")
            assert isinstance(await run.result(), Interrupted)
    assert len(pager.told) == 1
    told = pager.told[0]
    assert (told.session, told.state, told.agent) == ("s", "interrupted", "a")
    assert [(one.tool, one.arguments, one.kind) for one in told.calls] == [("pay", '{"n":1}', "unknown")]
    assert told.seq == events_of(paged(tmp_path, pager).store)[-1]["seq"]


async def test_a_person_whom_nobody_could_tell_is_told_at_the_next_start(tmp_path: Path) -> None:
    pager, agent = Pager(), losing(tmp_path)
    pager.fails = True
    async with Runtime(agents=[agent], ground=paged(tmp_path, pager)) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).result()
    assert [incident.stage for incident in runtime.diary.incidents] == ["tell"]
    pager.fails = False
    async with Runtime(agents=[agent], ground=paged(tmp_path, pager)):
        await asyncio.sleep(0.05)
    assert len(pager.told) == 1


async def test_a_held_call_is_told_and_the_lease_does_not_wait_for_it(tmp_path: Path) -> None:
    gate = asyncio.Event()

    class Slow(Pager):
        async def tell(self, parked: Parked) -> None:
            await gate.wait()
            await super().tell(parked)

    pager, agent = Slow(), holding(tmp_path, Held("the bank has it"))
    on = paged(tmp_path, pager)
    async with Runtime(agents=[agent], ground=on) as runtime:
        assert isinstance(await (await runtime.session("s", agent=agent).send("go")).result(), Paused)
        assert on.store.owner("s") is None
        gate.set()
    assert [one.kind for one in pager.told[0].calls] == ["held"]


async def test_a_run_that_ends_well_tells_nobody(tmp_path: Path) -> None:
    pager = Pager()
    agent = Agent("a", model=script_file(tmp_path / "m.json", {"text": "done"}))
    async with Runtime(agents=[agent], ground=paged(tmp_path, pager)) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).result()
    assert pager.told == []


async def test_a_command_gets_the_facts_on_its_input_and_no_secret_in_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "told.json"
    script = f"import json,os,sys; json.dump([json.load(sys.stdin), dict(os.environ)], open({str(out)!r}, 'w'))"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv(PARKED_VARIABLE, f'{sys.executable} -c "{script}"')
    agent = losing(tmp_path)
    async with Runtime(tmp_path / "s", agents=[agent]) as runtime:
        await (await runtime.session("s", agent=agent).send("go")).result()
    told, environment = json.loads(out.read_text())
    assert told["calls"][0]["tool"] == "pay"
    assert "OPENAI_API_KEY" not in environment
    assert runtime.diary.incidents == ()


async def test_a_command_that_fails_is_written_down_and_fails_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARKED_VARIABLE, f"{sys.executable} -c raise(SystemExit(3))")
    agent = losing(tmp_path)
    async with Runtime(tmp_path / "s", agents=[agent]) as runtime:
        assert isinstance(await (await runtime.session("s", agent=agent).send("go")).result(), Interrupted)
    assert "ended with 3" in runtime.diary.incidents[0].message


@pytest.mark.parametrize(("status", "told"), [(204, True), (302, False), (500, False)])
async def test_a_webhook_gets_one_post_with_its_key_and_only_a_2xx_counts(
    status: int, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str | None, dict[str, object]]] = []

    class Door(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            seen.append((self.headers["idempotency-key"], json.loads(body)))
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:9/")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = HTTPServer(("127.0.0.1", 0), Door)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        monkeypatch.setenv(PARKED_VARIABLE, f"http://127.0.0.1:{server.server_port}/hook")
        agent = losing(tmp_path)
        async with Runtime(tmp_path / "s", agents=[agent]) as runtime:
            await (await runtime.session("s", agent=agent).send("go")).result()
    finally:
        server.shutdown()
        server.server_close()
    assert len(seen) == 1
    assert seen[0][0] == seen[0][1]["key"]
    assert (runtime.diary.incidents == ()) is told
    assert all("/hook" not in incident.message for incident in runtime.diary.incidents)


@pytest.mark.parametrize("given", ["'open", " "])
async def test_a_setting_that_is_no_command_is_refused_by_name(given: str, tmp_path: Path) -> None:
    settings = replace(read_settings(tmp_path), on_parked=given)
    with pytest.raises(BadSettings, match=PARKED_VARIABLE):
        ground_of(settings)
