"""B01: the process dies while a tool runs. The call is on disk, its result is not; the session must not be dead because of it.

A real process, killed by SIGKILL, over a real chat server. The tool is `once`, so the run interrupts; the next send goes on.
"""

import json
from pathlib import Path

from semel.testing.model_server import serve_in_thread
from tests.cases.serve import paired
from tests.faces.support import open_shop

SCRIPT = {
    "answers": [
        {"text": "I start it.", "calls": [{"name": "pay", "args": {"cents": 125}}]},
        {"text": "I am here."},
        {"text": "Still here."},
    ]
}


def test_b01_each_open_call_gets_one_error_result_behind_it_and_is_never_run_again(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    with serve_in_thread(SCRIPT, journal=journal) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:m@{server.url}")
        shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
        assert len(shop.ledger) == 1
        assert shop.semel("resume", "s").exit == 3
        assert shop.semel("resume", "s").exit == 3  # a second resume repairs nothing a second time
        said = shop.semel("send", "are you there?", "--session", "s")
        assert said.exit == 0, said.err
        again = shop.semel("send", "and now?", "--session", "s")
        assert again.exit == 0, again.err
    assert len(shop.ledger) == 1
    bodies = [json.loads(json.loads(line)["body"]) for line in journal.read_text().splitlines()]
    assert len(bodies) == 3
    for body in bodies[1:]:
        sent = body["messages"]
        assert paired(sent)
        results = [at for at, message in enumerate(sent) if message["role"] == "tool"]
        assert len(results) == 1
        assert "unknown" in sent[results[0]]["content"]
        assert sent[results[0] + 1]["content"] == "are you there?"
    records = [json.loads(line.split(" ", 10)[10]) for line in shop.log("s").read_text().splitlines()]
    assert [record["type"] for record in records].count("tool_result") == 1
