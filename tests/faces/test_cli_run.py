"""`run`, `send`, `resume` where nothing goes wrong: real processes, a scripted model, and the same over real HTTP."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from semel.core.values import JSON
from semel.testing.model_server import serve_in_thread
from tests.faces.support import ANSWERS, Shop, open_shop, tree

STATUS_FIELDS = [
    *("schema", "session", "lineage", "run_id", "agent", "state", "reason", "exit", "error", "usage", "head_seq", "head_digest"),
    *("unknown_calls", "started_at_ms", "updated_at_ms", "finished_at_ms"),
]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return open_shop(tmp_path)


def test_run_prints_the_answer_alone_and_says_nothing_without_a_terminal(shop: Shop) -> None:
    done = shop.semel("run", "Pay 17")
    assert (done.exit, done.out, done.err) == (0, "It is paid.\n", "")
    assert len(shop.ledger) == 1


def test_run_with_json_prints_one_line_the_status_document_and_the_output(shop: Shop) -> None:
    done = shop.semel("run", "Pay 17", "--session", "s", "--json")
    assert (done.exit, done.err, len(done.lines)) == (0, "", 1)
    published = shop.status("s")
    assert list(published) == STATUS_FIELDS
    assert done.json == {**published, "output": "It is paid."}
    assert done.json["usage"] == {"input": 30, "output": 8}
    assert (done.json["state"], done.json["exit"], done.json["error"]) == ("completed", 0, None)


def test_verbose_tells_the_limits_and_every_record_on_stderr(shop: Shop) -> None:
    done = shop.semel("run", "Pay 17", "--session", "s", "-v")
    first, *records, last = done.err.splitlines()
    assert "limits: 50 steps, 5,000,000 tokens, 1 h, no cost limit" in first
    assert [int(line.split()[0]) for line in records] == list(range(1, shop.status("s")["head_seq"] + 1))
    assert "completed: 38 tokens" in last
    assert done.out == "It is paid.\n"


def test_stream_prints_the_text_as_it_comes_and_not_twice(shop: Shop) -> None:
    assert shop.semel("run", "Pay 17", "--stream").out == "I will pay it.\nIt is paid.\n"


def test_the_status_file_is_a_copy_of_the_status_document_and_nothing_else_is_left(shop: Shop) -> None:
    assert shop.semel("run", "Pay 17", "--session", "s", "--status", "out.json").exit == 0
    assert json.loads((shop.place / "out.json").read_bytes()) == shop.status("s")
    assert [name for name in tree(shop.place) if "out.json" in name] == ["out.json"]


def test_the_status_file_says_running_while_the_run_goes_on(shop: Shop) -> None:
    process = shop.start_and_pay("run", "Pay 17", "--session", "s", "--status", "out.json")
    running = json.loads((shop.place / "out.json").read_bytes())
    shop.let_pay()
    process.communicate()
    assert (running["state"], running["exit"], running["reason"]) == ("running", 0, None)
    assert "finished_at_ms" not in running


def test_a_key_makes_a_command_happen_once(shop: Shop) -> None:
    first, second = (shop.semel("run", "Pay 17", "--key", "invoice 17", "--json") for _ in range(2))
    assert first.exit == second.exit == 0
    assert first.json == second.json
    assert len(shop.ledger) == 1
    third = shop.semel("run", "Pay 18", "--key", "invoice 17")
    assert third.exit == 2
    assert "another input" in third.refusal()


def test_a_finished_key_needs_no_agent_and_writes_nothing(shop: Shop) -> None:
    shop.semel("run", "Pay 17", "--key", "k")
    (shop.place / "agent.toml").unlink()
    before = tree(shop.place)
    assert shop.semel("run", "Pay 17", "--key", "k").out == "It is paid.\n"
    assert tree(shop.place) == before


def test_the_key_of_an_older_run_prints_that_run(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"text": "one"}, {"text": "two"})
    for text, key in (("first", "a"), ("second", "b")):
        shop.semel("run", text, "--session", "s", "--key", key)
    again = shop.semel("run", "first", "--session", "s", "--key", "a", "--json").json
    assert again["output"] == "one"
    assert again["run_id"] != shop.status("s")["run_id"]


def test_send_goes_on_in_a_session_with_the_agent_of_its_log(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"text": "one"}, {"text": "two", "expect": "second"})
    shop.semel("run", "first", "--session", "s", "--agent", str(shop.place / "agent.toml"))
    elsewhere = Shop(tmp_path / "elsewhere", {"SEMEL_STATE": str(shop.state)})
    elsewhere.place.mkdir()
    assert elsewhere.semel("send", "-", "--session", "s", stdin="second").out == "two\n"


def test_resume_of_a_finished_session_reports_its_last_run_and_its_exit_code(shop: Shop) -> None:
    shop.semel("run", "Pay 17", "--session", "s")
    assert shop.semel("resume", "s").out == "It is paid.\n"
    key = shop.interrupted("t")
    again = shop.semel("resume", "t")
    assert (again.exit, again.out) == (3, "")
    assert f"semel resolve {key[:8]} VERDICT --continue" in again.refusal()


def test_resume_without_anything_open_says_so(shop: Shop) -> None:
    assert shop.semel("resume").err == "nothing to resume\n"
    shop.semel("run", "Pay 17")
    done = shop.semel("resume")
    assert (done.exit, done.out, done.err) == (0, "", "nothing to resume\n")


def test_a_model_alone_is_an_agent_too_and_can_be_gone_on_with(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"text": "hi"}, {"text": "again"})
    (shop.place / "agent.toml").unlink()
    assert shop.semel("run", "Say hi", "--model", "scripted:script.json", "--session", "s").out == "hi\n"
    assert shop.semel("send", "Again", "--session", "s").out == "again\n"


def test_an_agent_object_of_a_module_runs_and_is_found_again(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"text": "hi"}, {"text": "again"})
    code = "from semel import Agent\nagent = Agent('made', model='scripted:script.json')\nnone = 1\n"
    (shop.place / "made.py").write_text(code)
    assert shop.semel("run", "Hi", "--agent", "made:agent", "--session", "s").out == "hi\n"
    assert shop.semel("send", "Again", "--session", "s", "--json").json["agent"] == "made"


def test_the_whole_way_over_real_http(tmp_path: Path) -> None:
    with serve_in_thread({"answers": list(ANSWERS)}) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:clerk@{server.url}")
        done = shop.semel("run", "Pay 17", "--session", "s", "--json")
        shown = shop.semel("preview", "s", "Pay 18")
        bodies = [request.body for request in server.requests]
    assert (done.exit, done.json["output"], len(bodies)) == (0, "It is paid.", 2)
    assert json.loads(shown.out)["messages"][: len(json.loads(bodies[1])["messages"])] == json.loads(bodies[1])["messages"]


def test_what_a_python_tool_prints_is_talk(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"calls": [{"name": "loud", "args": {}}]}, {"text": "done"})
    (shop.place / "loud_tools.py").write_text("def loud() -> str:\n    print('noise')\n    return 'ok'\n")
    (shop.place / "agent.toml").write_text((shop.place / "agent.toml").read_text() + '[tools.loud]\npython = "loud_tools:loud"\n')
    done = shop.semel("run", "Hi")
    assert (done.exit, done.out, done.err) == (0, "done\n", "noise\n")


def test_closed_streams_change_nothing(shop: Shop) -> None:
    command = f"{sys.executable} -m semel run 'Pay 17' --session s <&- >&- 2>&-"
    done = subprocess.run(command, shell=True, cwd=shop.place, env=shop.environment({}), check=False)
    assert done.returncode == 0
    assert shop.status("s")["state"] == "completed"
    assert shop.semel("verify", "s").exit == 0


FAULTS = [
    ("a 429 is asked again", {"kind": "status", "status": 429}, 0, 2, "completed"),
    ("a 500 is asked again", {"kind": "status", "status": 500}, 0, 2, "completed"),
    ("a 400 is final", {"kind": "status", "status": 400}, 1, 1, "failed"),
    ("a cut answer is asked again", {"kind": "cut", "at": 300}, 0, 2, "completed"),
    ("an answer that is always cut fails", {"kind": "cut", "at": 300, "times": None}, 1, 2, "failed"),
]


@pytest.mark.parametrize(("fault", "code", "asked", "state"), [case[1:] for case in FAULTS], ids=[case[0] for case in FAULTS])
def test_what_a_model_server_does_decides_exit_and_status(tmp_path: Path, fault: JSON, code: int, asked: int, state: str) -> None:
    with serve_in_thread({"answers": [{"text": "It is paid, and that is that.", "fault": fault}]}) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:m@{server.url}")
        (tmp_path / "agent.toml").write_text(
            (tmp_path / "agent.toml").read_text().replace("model_retries = 0", "model_retries = 1")
        )
        done = shop.semel("run", "Hi", "--session", "s", "--json")
        assert len(server.requests) == asked
    assert (done.exit, done.json["state"]) == (code, state)
    assert (done.json["error"] is None) == (code == 0)
    assert len(done.err.splitlines()) == (1 if code else 0)


def test_a_stream_that_was_cut_is_told_and_shown_whole_again(tmp_path: Path) -> None:
    text = "It is paid, and that is all there is to say."
    with serve_in_thread({"answers": [{"text": text, "chunk": 4, "fault": {"kind": "cut"}}]}) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:m@{server.url}")
        (tmp_path / "agent.toml").write_text(
            (tmp_path / "agent.toml").read_text().replace("model_retries = 0", "model_retries = 1")
        )
        done = shop.semel("run", "Hi", "--stream")
    first, second = done.out.splitlines()
    assert second == text
    assert text.startswith(first)
    assert 0 < len(first) < len(text)
    assert done.err == "semel: what was shown of that answer does not count\n"


def test_a_stream_that_is_refused_says_why_and_nothing_of_an_answer(tmp_path: Path) -> None:
    done = open_shop(tmp_path, {"text": "one"}).semel("run", "Hi", "--session", "s", "--stream")
    assert done.exit == 0
    refused = Shop(tmp_path).semel("send", "And?", "--session", "s", "--stream")
    assert (refused.exit, refused.out) == (1, "")
    (line,) = refused.err.splitlines()
    assert "failed: invalid_request" in line
