"""`ls`, `show`, `tail`, `preview`, `verify`, `models`, `mock`: they tell the truth and change nothing."""

import json
import signal
from pathlib import Path

import pytest

from semel.core.frame import encode_frames, scan
from semel.faces.verify import verify_log
from semel.ports.log import Payload
from semel.testing.model_server import serve_in_thread
from tests.faces.support import PAY, Quiet, Shop, open_shop, tree
from tests.faces.test_cli_refusals import damage, make_newer


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A finished session, one with an unknown call, a stranded one, and two that cannot be read."""
    shop = open_shop(tmp_path_factory.mktemp("shop"))
    for session in ("damaged", "done", "newer"):
        shop.semel("run", "Pay 17", "--session", session)
    damage(shop.log("damaged"))
    make_newer(shop.log("newer"))
    shop.interrupted("lost")
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "open"))
    return shop


def test_ls_lists_every_session_also_those_that_cannot_be_read(shop: Shop) -> None:
    done = shop.semel("ls", "--json")
    listed = {line["session"]: line for line in done.lines}
    assert (done.exit, list(listed)) == (6, ["damaged", "done", "lost", "newer", "open"])
    assert [(line["state"], line["owner"], line["unknown_calls"]) for line in done.lines] == [
        (None, None, 0),
        ("completed", None, 0),
        ("interrupted", None, 1),
        (None, None, 0),
        ("running", None, 0),
    ]
    assert [line["error"] and line["error"]["code"] for line in done.lines] == ["log_damaged", None, None, "newer_writer", None]
    heading, *rows = shop.semel("ls").out.splitlines()
    assert heading.split("\t") == ["session", "state", "agent", "records", "last", "held by"]
    assert [row.split("\t")[1] for row in rows] == ["log_damaged", "completed", "interrupted", "newer_writer", "open"]


def test_ls_of_an_empty_place_is_empty(tmp_path: Path) -> None:
    done = open_shop(tmp_path).semel("ls")
    assert (done.exit, done.out, done.err) == (0, "", "no sessions here\n")
    assert not (tmp_path / ".semel").exists()


def test_inbox_shows_calls_then_stranded_runs_and_names_what_it_left_out(shop: Shop) -> None:
    done = shop.semel("inbox", "--json")
    found = [(line["kind"], line["session"]) for line in done.lines]
    assert found == [("call", "lost"), ("run", "open"), ("session", "damaged"), ("session", "newer")]
    assert [line["error"]["code"] for line in done.lines[2:]] == ["log_damaged", "newer_writer"]
    assert [line["next"] for line in done.lines[2:]] == ["semel verify damaged", "semel verify newer"]
    assert (done.exit, done.err) == (6, "")
    text = shop.semel("inbox").out
    assert f"{done.lines[0]['call_key'][:8]}\tpay\t" in text
    assert text.count("cannot be read, so what waits in it is not known") == 2
    assert "of session open is open since" in text


def test_show_tells_runs_steps_and_calls_and_the_next_command(shop: Shop) -> None:
    (run,) = shop.semel("show", "lost", "--json").json["runs"]
    (step,) = run["steps"]
    (call,) = step["calls"]
    assert (run["input"], run["reason"], run["resumes"], step["text"]) == ("Pay 17", "interrupted", 1, "I will pay it.")
    assert (call["tool"], call["arguments"], call["outcome"], call["verdict"]) == ("pay", '{"cents":125}', "unknown", None)
    text = shop.semel("show", "lost").out
    assert f"semel resolve {call['call_key'][:8]} VERDICT --continue" in text
    assert "nobody carries the open run; `semel resume open` goes on" in shop.semel("show", "open").out


def test_explain_names_the_unknown_call_and_the_command_that_goes_on(shop: Shop) -> None:
    (run,) = shop.semel("show", "lost", "--json").json["runs"]
    key = run["steps"][0]["calls"][0]["call_key"]
    told = shop.semel("explain", "lost", "--json").json["sentences"]
    named = [one for one in told if key[:8] in one["text"]]
    assert named
    assert all(one["command"].startswith(f"semel resolve {key[:8]}") for one in named if one["command"])
    assert any(one["command"] for one in named)
    text = shop.semel("explain", "lost").out
    assert all(one["text"] in text for one in told)
    assert "semel resume open" in shop.semel("explain", "open").out
    assert "resolve" not in shop.semel("explain", "done").out


def test_show_tells_how_each_kind_of_call_ended(tmp_path: Path) -> None:
    calls = [PAY, {"name": "pya", "args": {}}, {"name": "pay", "raw": "{"}]
    shop = open_shop(tmp_path, {"calls": calls}, {"text": "done"})
    shop.semel("run", "Go", "--session", "s")
    (run,) = shop.semel("show", "s", "--json").json["runs"]
    told = [(call["outcome"], call["reason"]) for call in run["steps"][0]["calls"]]
    assert told == [("completed", None), ("refused", "unknown_tool"), ("refused", "arguments_invalid")]


def test_tail_prints_exactly_the_records_behind_a_seq(shop: Shop) -> None:
    every = shop.semel("tail", "done", "--json").lines
    assert [event["seq"] for event in every] == list(range(1, shop.status("done")["head_seq"] + 1))
    assert all(list(event) == ["seq", "at_ms", "type", "record"] for event in every)
    assert shop.semel("tail", "done", "--after", "12", "--json").lines == every[12:]
    assert shop.semel("tail", "done", "--after", "99", "--json").out == ""
    payloads = [frame.payload for frame in scan(shop.log("done").read_bytes()).frames[1:]]
    assert [event["record"] for event in every] == [json.loads(payload) for payload in payloads]
    assert len(shop.semel("tail", "done").out.splitlines()) == len(every)


def test_what_looks_changes_nothing(shop: Shop) -> None:
    before = tree(shop.place)
    for words in (("ls",), ("inbox",), ("show", "open"), ("tail", "open"), ("preview", "done"), ("verify",), ("models",)):
        assert shop.semel(*words).exit in {0, 6}, words
    assert tree(shop.place) == before


def test_the_preview_of_an_open_run_is_the_request_that_a_resume_sends(tmp_path: Path) -> None:
    model = Quiet({"text": "hello"})
    with serve_in_thread(model) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:m@{server.url}")
        process = shop.start("run", "Hi", "--session", "s")
        assert model.asked.wait(30)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        shown = shop.semel("preview", "s")
        named = shop.semel("preview", "s", "--json").json
        assert shop.semel("resume", "s").out == "hello\n"
        first, second = server.requests
    assert shown.out.encode() == first.body == second.body
    assert shown.err == ""
    assert (named["sha256"], named["body"]) == (first.sha256, json.loads(first.body))


def test_the_preview_of_a_finished_session_is_the_request_of_the_message_that_it_is_given(tmp_path: Path) -> None:
    with serve_in_thread({"answers": [{"text": "one"}, {"text": "two"}]}) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:m@{server.url}")
        shop.semel("run", "first", "--session", "s")
        shown = shop.semel("preview", "s", "second")
        blank = shop.semel("preview", "s")
        shop.semel("send", "second", "--session", "s")
        assert shown.out.encode() == server.requests[-1].body
    assert "<the next message>" in blank.out
    assert "stands for the message" in blank.err


def test_the_preview_of_a_run_that_a_resume_will_seal_is_that_of_the_next_run(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    shown = shop.semel("preview", "s", "What now?", "--json").json
    assert shop.semel("resume", "s").exit == 3
    assert shop.semel("send", "What now?", "--session", "s").exit == 0
    *_, sent = [event for event in shop.semel("tail", "s", "--json").lines if event["type"] == "model_attempt_finished"]
    assert sent["record"]["request_body_sha256"] == shown["sha256"]
    assert "Outcome unknown" in shown["body"]["messages"][-2]["content"]


def test_there_is_no_preview_while_a_call_that_runs_again_is_open(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, effect="idempotent")
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    done = shop.semel("preview", "s")
    assert done.exit == 3
    assert "depends on calls of step 1 that are still open" in done.refusal()


def test_verify_counts_names_the_head_and_is_content_with_good_logs(shop: Shop) -> None:
    done = shop.semel("verify", "done", "--json")
    (log,) = done.json["logs"]
    status = shop.status("done")
    assert (done.exit, done.json["checked"], done.json["damaged"], log["verdict"]) == (0, 1, 0, "clean")
    assert (log["head_seq"], log["head_digest"]) == (status["head_seq"], status["head_digest"])
    assert log["bytes"] == shop.log("done").stat().st_size


def test_verify_names_file_byte_and_reason_and_what_can_be_read_behind_damage(shop: Shop) -> None:
    done = shop.semel("verify", "--json")
    verdicts = {log["session"]: log for log in done.json["logs"]}
    assert (done.exit, done.json["checked"], done.json["damaged"]) == (6, 5, 2)
    assert {name: log["verdict"] for name, log in verdicts.items()} == {
        "damaged": "damaged",
        "done": "clean",
        "lost": "clean",
        "newer": "newer",
        "open": "clean",
    }
    damaged = verdicts["damaged"]
    bad = scan(shop.log("damaged").read_bytes()).tail
    assert (damaged["path"], damaged["offset"]) == (str(shop.log("damaged")), bad.offset)
    assert damaged["seq"] == damaged["records"] + 1
    assert [proven["seq"] for proven in damaged["behind"]][-1] == shop.status("damaged")["head_seq"]
    assert "dreams/v1" in verdicts["newer"]["reason"]
    text = shop.semel("verify", "damaged").out
    assert f"damaged at byte {bad.offset}, record {damaged['seq']}: " in text
    assert text.count("behind it, byte") == len(damaged["behind"])


def test_a_log_that_is_checked_piece_by_piece_gets_the_same_verdict(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [verify_log(shop.log(session)) for session in ("damaged", "done", "newer")]
    seen: list[int] = []
    for chunk_bytes in (1, 700, 2000):
        monkeypatch.setattr("semel.faces.verify.PIECE_BYTES", chunk_bytes)
        assert [verify_log(shop.log(session), progress=seen.append) for session in ("damaged", "done", "newer")] == whole
    assert seen.count(1) >= sum(verdict.bytes for verdict in whole)
    assert seen.count(700) >= 9
    assert sum(seen) == 3 * sum(verdict.bytes for verdict in whole)


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    raw = shop.log("s").read_bytes()
    point = scan(raw).point
    next_frame = encode_frames([Payload(json=b"{}")], point, at_ms=0, fence=point.fence, synced=point.synced).data
    shop.log("s").write_bytes(raw + next_frame[:-5])
    done = shop.semel("verify", "s", "--json")
    (log,) = done.json["logs"]
    assert (done.exit, log["verdict"], log["offset"]) == (0, "torn", len(raw))
    assert "which the next open cuts" in shop.semel("verify", "s").out
    assert shop.semel("resume", "s").exit == 3


def test_a_log_that_is_gone_is_damage_where_its_status_remembers_it(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    shop.log("s").unlink()
    done = shop.semel("verify", "--json")
    assert (done.exit, done.json["logs"][0]["verdict"]) == (6, "damaged")
    sent = shop.semel("send", "Hi", "--session", "s")
    assert sent.exit == 6
    assert "but the log is gone" in sent.refusal()


def test_a_log_in_the_place_of_another_is_damage(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for session in ("a", "b"):
        shop.semel("run", "Pay 17", "--session", session)
    shop.log("a").replace(shop.log("b"))
    verdict = shop.semel("verify", "b", "--json").json["logs"][0]
    assert (verdict["verdict"], verdict["reason"]) == ("damaged", "it is the log of session 'a'")


def test_verify_takes_a_file_a_session_directory_and_a_state_directory(shop: Shop) -> None:
    log = shop.log("done")
    counts = [shop.semel("verify", str(path), "--json").json["checked"] for path in (log, log.parent, shop.state)]
    assert counts == [1, 1, 5]


ODD_IDS = ["../../etc/x", "/abs", "..%2f", "Upper", "a b", ".", "ünï", "x" * 200, "=aa", "a\tb"]


def test_no_session_id_leaves_its_directory(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"text": "hi"})
    outside = tree(tmp_path)
    for session in ODD_IDS:
        assert shop.semel("run", "Hi", "--session", session).exit == 0, session
    assert [line["session"] for line in shop.semel("ls", "--json").lines] == sorted(ODD_IDS)
    assert {path: digest for path, digest in tree(tmp_path).items() if not path.startswith(".semel")} == outside
    assert len(list((shop.state / "sessions").iterdir())) == len(ODD_IDS)


def test_mock_serves_a_script_that_a_run_talks_to(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"text": "hi from the script"})
    server = shop.start("mock", "script.json", "--journal", "asked.jsonl")
    assert server.stdout is not None
    url = server.stdout.readline().strip()
    (shop.place / "agent.toml").unlink()
    assert shop.semel("run", "Hi", "--model", f"openai_chat:m@{url}").out == "hi from the script\n"
    server.send_signal(signal.SIGTERM)
    server.communicate()
    assert server.returncode == 0
    assert len((tmp_path / "asked.jsonl").read_text().splitlines()) == 1


def test_models_name_their_key_and_never_show_it(tmp_path: Path) -> None:
    done = open_shop(tmp_path).semel("models", "--json", OPENAI_API_KEY="sk-canary")
    row = next(line for line in done.lines if line["provider"] == "openai")
    assert (row["key"], row["key_is_set"]) == ("OPENAI_API_KEY", True)
    assert "canary" not in done.out
