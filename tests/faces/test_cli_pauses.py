"""A run that waits for another key, on the command line: every verb says so, and `resume` tries once."""

import json
import signal
import time
from pathlib import Path

import pytest

from semel.testing.model_server import serve_in_thread
from tests.faces.support import Shop, open_shop

KEY = "SEMEL_KEY_127_0_0_1"
REFUSED = {"kind": "status", "status": 401, "body": {"error": {"message": "no such key", "code": "invalid_api_key"}}}


def shop_at(place: Path, url: str) -> Shop:
    return open_shop(place, model=f"openai_chat:m@{url}")


def test_a_refused_key_is_told_by_every_verb_and_a_resume_with_the_right_one_completes_the_run(tmp_path: Path) -> None:
    with serve_in_thread({"answers": [{"text": "hi", "fault": {**REFUSED, "times": 3}}]}) as server:
        shop = shop_at(tmp_path, server.url)
        first = shop.semel("run", "Hi", "--session", "s", "--key", "k", **{KEY: "sk-wrong"})
        assert first.exit == 4
        line = first.refusal()
        assert f"the key came from {KEY}" in line
        assert line.endswith("Give it the right one, then `semel resume s` reads it anew and goes on")
        status = shop.status("s")
        assert (status["state"], status["reason"], status["exit"], status["error"]["code"]) == (
            "paused",
            "auth_required",
            4,
            "auth",
        )

        assert "paused (auth_required)" in shop.semel("ls").out
        told = shop.semel("inbox")
        assert "of session s waits for another key since" in told.out
        assert "`semel resume` goes on" in told.err
        (item,) = shop.semel("inbox", "--json").lines
        assert (item["kind"], item["next"]) == ("auth_required", "semel resume s")
        assert "no such key" in item["why"]
        explained = shop.semel("explain", "s").out
        assert "Its model's provider refused the key" in explained
        assert "  semel resume s\n" in explained
        assert len(server.requests) == 1, "to look changes nothing"

        again = shop.semel("resume", **{KEY: "sk-wrong-too"})
        assert (again.exit, len(server.requests)) == (4, 2)
        same = shop.semel("run", "Hi", "--session", "s", "--key", "k", **{KEY: "sk-wrong-too"})
        assert (same.exit, len(server.requests)) == (4, 3)
        done = shop.semel("resume", "s", "--json", **{KEY: "sk-right"})
        assert (done.exit, done.json["state"], done.json["output"], len(server.requests)) == (0, "completed", "hi", 4)
        assert server.requests[-1].headers["authorization"] == "Bearer sk-right"
        assert len({received.sha256 for received in server.requests}) == 1
    assert "the inbox is empty" in shop.semel("inbox").err
    assert "sk-" not in shop.log("s").read_text()


def test_a_message_that_is_queued_behind_a_run_that_waits_for_a_key_is_not_tried_for_ever(tmp_path: Path) -> None:
    with serve_in_thread({"answers": [{"text": "hi", "fault": {**REFUSED, "times": None}}]}) as server:
        shop = shop_at(tmp_path, server.url)
        assert shop.semel("run", "Hi", "--session", "s").exit == 4
        queued = shop.semel("send", "And then?", "--session", "s", "--delivery", "queue", "--key", "q")
        assert queued.exit == 4
        before = len(server.requests)
        again = shop.semel("send", "And then?", "--session", "s", "--delivery", "queue", "--key", "q")
        assert (again.exit, len(server.requests) - before) == (4, 1)
        plain = shop.semel("send", "And now?", "--session", "s")
        assert (plain.exit, len(server.requests) - before) == (7, 2)
        assert "auth_required" in plain.refusal()
        ended = shop.semel("stop", "s", "--by", "anna")
        assert (ended.exit, "stopped" in ended.err) == (0, True)
        assert shop.status("s")["state"] in ("failed", "paused")  # the queue may have begun its next run already


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_command_that_is_told_to_stop_exits_with_its_signal_and_leaves_a_run_that_is_listed_as_open(
    number: int, tmp_path: Path
) -> None:
    reached = tmp_path / "reached"
    hold = {"kind": "hold", "at": 0, "reached": str(reached), "times": 1}
    with serve_in_thread({"answers": [{"text": "hi", "fault": hold}]}) as server:
        shop = shop_at(tmp_path, server.url)
        process = shop.start("run", "Hi", "--session", "s")
        while not reached.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate()
        assert process.returncode == 128 + number, said
        assert "The run is safe in the log" in said
        status = shop.status("s")
        assert (status["state"], status["reason"]) == ("paused", "restart")
        assert "\topen\t" in shop.semel("ls").out
        (item,) = [json.loads(line) for line in shop.semel("inbox", "--json").out.splitlines()]
        assert (item["kind"], item["next"]) == ("run", "semel resume s")
        assert shop.semel("resume").out == "hi\n"
