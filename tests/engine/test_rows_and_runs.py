"""P4: a row of the catalog that changes or goes away moves no run that was admitted under it."""

from pathlib import Path

import pytest

from semel import Agent, Completed, Limits, Runtime
from semel.errors import UnknownModel
from semel.testing.ground import memory_ground
from semel.testing.model_server import ModelServer
from tests.engine.fakes import call, counting

pytestmark = pytest.mark.anyio
ROW = """
[house]
family = "openai_chat"
base_url = "{url}"
example = "house:m"

[house.models.m]
max_output = {most}
price = {{ currency = "EUR", input = "1.00", output = "2.00" }}
"""
OTHER = ROW.replace("openai_chat", "anthropic_messages").replace("EUR", "USD")


@pytest.mark.parametrize("later", ["other", "elsewhere", "withdrawn", "no file"])
async def test_a_changed_or_withdrawn_row_moves_no_admitted_run(
    later: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "models.toml"
    monkeypatch.setenv("SEMEL_MODELS", str(file))
    used = {"input": 1_000_000, "output": 500_000}
    script = {"answers": [{"text": "hm", "calls": [call("look")], "usage": used}, {"text": "done", "usage": used}]}
    script["answers"][1]["fault"] = {"kind": "hold", "times": 1}
    ground = memory_ground()
    async with ModelServer(script) as server:
        file.write_text(ROW.format(url=server.url, most=500))
        agent = Agent("a", model="house:m", tools=[counting("look")], limits=Limits(cost="100.00 EUR"))
        async with Runtime(agents=[agent], ground=ground, recover="manual", drain_seconds=0) as runtime:
            await runtime.session("s", agent=agent).send("go")
            await server.reached.wait()
        server.release.set()
        changed = {
            "other": OTHER.format(url=server.url, most=7),
            "elsewhere": ROW.format(url="https://llm.house.example/v1", most=500),
            "withdrawn": "",
            "no file": "",
        }
        file.write_text(changed[later])
        if later == "no file":
            monkeypatch.delenv("SEMEL_MODELS")
        async with Runtime(agents=[agent], ground=ground, recover="manual") as runtime:
            run = await runtime.session("s", agent=agent).resume()
            assert run is not None
            result = await run.result()
            if later in ("withdrawn", "no file"):
                with pytest.raises(UnknownModel):
                    await runtime.session("s", agent=agent).send("again")
        assert isinstance(result, Completed)
        assert str(result.usage.cost) == "4.00 EUR"
        assert [received.path for received in server.requests] == ["/v1/chat/completions"] * 3
        assert server.requests[1].body == server.requests[2].body
        assert b'"max_tokens":500' in server.requests[2].body
