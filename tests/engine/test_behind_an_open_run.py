"""A session whose newest run was left open by a dead process: what does not need that run does not wait for it."""

from pathlib import Path

import pytest

from semel import Agent, Completed, Interrupted, Runtime
from semel.adapters.memory.store import Medium
from semel.core.values import JSON, Effect
from semel.errors import KeyReuse
from semel.faces.views import view_of
from tests.engine.fakes import call, counting, ground, script_file
from tests.engine.test_resume import Life, hanging

pytestmark = pytest.mark.anyio


async def lost(_arguments: object, _call: object) -> object:
    raise ConnectionResetError("gone")


class Left:
    """A session whose first run, under key k1, is finished, and whose second one died in its call of `look`."""

    def __init__(self, tmp_path: Path, first: JSON) -> None:
        self.medium = Medium()
        self.look, self.reached = hanging("look", Effect.READ)
        self.pay = counting("pay", behaviour=lost)
        model = script_file(tmp_path / "m.json", first, {"calls": [call("look")]}, {"text": "done"}, {"text": "more"})
        self.agent = Agent("a", model=model, tools=[self.look, self.pay])

    async def die(self) -> object:
        """The result of the first run."""
        async with Runtime(agents=[self.agent], ground=ground(self.medium)) as runtime:
            result = await (await runtime.session("s", agent=self.agent).send("first", key="k1")).result()
        await Life(self.medium, self.agent, self.reached).die_in_the_tool()
        return result


async def test_a_key_that_was_used_gives_its_run_at_once_and_leaves_the_open_run_alone(tmp_path: Path) -> None:
    left = Left(tmp_path, {"text": "one"})
    await left.die()
    before = bytes(left.medium.logs["s"].data)
    async with Runtime(agents=[left.agent], ground=ground(left.medium), recover="manual") as runtime:
        again = await runtime.session("s", agent=left.agent).send("first", key="k1")
        assert (await again.result()).output == "one"
    assert len(left.look.keys) == 1
    assert bytes(left.medium.logs["s"].data) == before


async def test_a_key_that_was_used_for_another_message_is_refused_before_the_open_run_is_touched(tmp_path: Path) -> None:
    left = Left(tmp_path, {"text": "one"})
    await left.die()
    async with Runtime(agents=[left.agent], ground=ground(left.medium), recover="manual") as runtime:
        with pytest.raises(KeyReuse, match="another input"):
            await runtime.session("s", agent=left.agent).send("another", key="k1")
    assert len(left.look.keys) == 1


async def test_a_verdict_is_recorded_at_once_and_the_open_run_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    left = Left(tmp_path, {"calls": [call("pay")]})
    result = await left.die()
    assert isinstance(result, Interrupted)
    async with Runtime(agents=[left.agent], ground=ground(left.medium), recover="manual") as runtime:
        await runtime.resolve(result.unknown[0].call_key, "happened")
        assert len(left.look.keys) == 1
        assert runtime.inbox() == []
        run = await runtime.resume("s")
        assert run is not None
        assert isinstance(await run.result(), Completed)
    ended = view_of(ground(left.medium).store, "s").state.ended
    assert [run.reason for run in ended.values()] == ["interrupted", "completed"]
