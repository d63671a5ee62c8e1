"""`doctor`, `repair`, `backup`, `restore`: nothing is lost without consent, and a copy never sends anything again by itself."""

import json
import shutil
from pathlib import Path

import pytest

from semel.core.frame import line_of, scan
from tests.faces.support import Shop, open_shop, tree


def damage(shop: Shop, session: str, seq: int) -> bytes:
    """Flip a bit in the middle of a record; returns the bytes as they are then."""
    path = shop.log(session)
    data = bytearray(path.read_bytes())
    frame = next(frame for frame in scan(bytes(data)).frames if frame.seq == seq)
    data[frame.offset + len(line_of(frame)) - 5] ^= 1
    path.write_bytes(data)
    return bytes(data)


def test_doctor_finds_nothing_to_do_in_a_sound_directory(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    assert "there is no state directory" in shop.semel("doctor").out
    shop.semel("run", "Pay 17", "--session", "s")
    before = tree(tmp_path)
    done = shop.semel("doctor", "--json")
    assert (done.exit, done.json["problems"]) == (0, 0)
    assert {finding["weight"] for finding in done.json["findings"]} == {"fine"}
    assert tree(tmp_path) == before


def test_doctor_names_every_kind_of_trouble_and_what_to_do_about_it(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for session in ("damaged", "stale", "open", "readable", "linked"):
        if session == "open":
            shop.kill(shop.start_and_pay("run", "Pay 17", "--session", session))
        else:
            shop.semel("run", "Pay 17", "--session", session)
    damage(shop, "damaged", 3)
    (shop.log("stale").parent / "status.json").unlink()
    (shop.log("stale").parent / "wal.torn-77").write_bytes(b"1 2")
    (shop.log("stale").parent / "status.json.new").write_bytes(b"{")
    shop.log("readable").chmod(0o644)
    shop.log("linked").with_name("other").hardlink_to(shop.log("linked"))
    (shop.state / "sessions" / "Not Ours").mkdir(mode=0o700)
    (shop.state / "wal-feature-floor").write_text("nonsense")
    before = tree(tmp_path)
    done = shop.semel("doctor", "--json")
    assert done.exit == 1
    assert tree(tmp_path) == before
    found = [(one["weight"], f"{one['about']}: {one['what']}", one.get("advice", "")) for one in done.json["findings"]]

    def advice(weight: str, *words: str) -> str:
        (one,) = [advice for kind, text, advice in found if kind == weight and all(word in text for word in words)]
        return one

    assert "backup" in advice("problem", "wal-feature-floor: ", "is damaged")
    assert "others can" not in advice("note", "readable/wal.log", "others can read")
    assert "plain file" in advice("problem", "linked/wal.log", "hard links")
    assert advice("note", "wal.torn-77", "keeps 3 bytes")
    assert advice("note", "status.json.new", "died while writing")
    assert advice("note", "Not Ours", "is no session's directory")
    text = shop.semel("doctor").out
    assert text.count("PROBLEM") == done.json["problems"]


def test_doctor_sees_damage_open_runs_stale_status_and_leases(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for session in ("damaged", "stale"):
        shop.semel("run", "Pay 17", "--session", session)
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "open"))
    busy = shop.start_and_pay("run", "Pay 17", "--session", "busy")
    damage(shop, "damaged", 3)
    (shop.log("stale").parent / "status.json").unlink()
    done = shop.semel("doctor", "--json")
    said = {finding["about"]: finding for finding in done.json["findings"]}
    shop.kill(busy)
    assert "is damaged at byte" in said["damaged"]["what"]
    assert "semel verify" in said["damaged"]["advice"]
    assert "semel resume open" in said["open"]["advice"]
    assert "older than the log" in said["stale"]["what"]
    assert f"in use by process {busy.pid}" in said["busy"]["what"]
    assert done.json["problems"] == 1


def test_doctor_does_not_advise_to_remove_a_session_whose_log_is_gone(tmp_path: Path) -> None:
    shop, session = open_shop(tmp_path), "Ä" * 90
    shop.semel("run", "Pay 17", "--session", session)
    (place,) = (shop.state / "sessions").iterdir()
    (place / "wal.log").unlink()
    for about in (session, str(place)):
        done = shop.semel("doctor", "--json")
        (problem,) = [one for one in done.json["findings"] if one["weight"] == "problem"]
        assert (done.exit, problem["about"]) == (1, about)
        assert "semel verify" in problem["advice"]
        (place / "status.json").write_bytes(b"{}")
    (place / "status.json").unlink()  # the control: a directory in which nothing ever was
    done = shop.semel("doctor", "--json")
    assert (done.exit, done.json["problems"]) == (0, 0)


def test_repair_changes_nothing_before_the_loss_is_accepted_and_then_keeps_every_byte(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    whole = scan(shop.log("s").read_bytes())
    bad = damage(shop, "s", 6)
    status = (shop.log("s").parent / "status.json").read_bytes()
    before = tree(tmp_path)

    told = shop.semel("repair", "s", "--json")
    assert (told.exit, told.json["repaired"]) == (6, False)
    assert tree(tmp_path) == before
    assert "would be cut" in shop.semel("repair", "s").out
    loss = told.json["loss"]
    assert loss["remembered"] == whole.frames[-1].seq
    assert loss["kept_records"] < 6
    assert loss["lost_bytes"] == len(bad) - loss["offset"]

    done = shop.semel("repair", "s", "--accept-loss", "--json")
    assert (done.exit, done.json["repaired"]) == (0, True)
    kept = (shop.log("s").parent / done.json["loss"]["kept_as"]).read_bytes()
    after = shop.log("s").read_bytes()
    assert bad == bad[: loss["offset"]] + kept
    assert after.startswith(bad[: loss["offset"]])
    assert (shop.log("s").parent / f"status.damaged-{loss['offset']}").read_bytes() == status
    assert shop.semel("verify", "s").exit == 0
    assert "not damaged" in shop.semel("repair", "s", "--accept-loss").out


@pytest.mark.parametrize("seq", range(1, 13))
def test_p2_a_repaired_session_never_pays_again_by_itself(seq: int, tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    assert len(shop.ledger) == 1
    if seq >= len(scan(shop.log("s").read_bytes()).frames):
        pytest.fail("the sweep is longer than the log")
    damage(shop, "s", seq)
    assert shop.semel("repair", "s", "--accept-loss").exit == 0
    shop.semel("resume", "s")
    assert len(shop.ledger) == 1
    verdict = shop.semel("verify", "s", "--json").json["logs"][0]["verdict"] if shop.log("s").stat().st_size else "empty"
    assert verdict in ("clean", "empty")


def test_a_repair_that_was_cut_short_is_named_and_finished(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    (shop.log("s").parent / "parking").write_bytes(b"")
    refused = shop.semel("resume", "s")
    assert "its open run is not closed yet" in refused.err
    assert refused.exit == 2
    problem = next(one for one in shop.semel("doctor", "--json").json["findings"] if one["weight"] == "problem")
    assert "semel repair s --accept-loss" in problem["advice"]
    done = shop.semel("repair", "s", "--accept-loss", "--json")
    assert (done.exit, done.json["repaired"], done.json["loss"]) == (0, True, None)
    (call,) = done.json["unknown"]
    assert shop.semel("inbox", "--json").lines[0]["call_key"] == call
    assert shop.semel("resume", "s").exit == 3
    assert len(shop.ledger) == 1


def test_doctor_names_an_index_that_cannot_be_read_and_what_to_do(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    shop.semel("ls")
    index = str(shop.state / "index.db")

    def told() -> tuple[str, str]:
        (one,) = [one for one in shop.semel("doctor", "--json").json["findings"] if one["about"] == index]
        return one["weight"], one["what"] + one.get("advice", "")

    assert told() == ("fine", "sessions that it knows: 1")
    (shop.state / "index.db").write_bytes(b"nonsense")
    assert told()[0] == "note"
    assert "semel reindex" in told()[1]
    shop.semel("reindex")
    assert told() == ("fine", "sessions that it knows: 1")


def test_repair_refuses_what_a_newer_build_wrote_and_a_session_in_use(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    busy = shop.start_and_pay("run", "Pay 17", "--session", "busy")
    assert "not damaged" in shop.semel("repair", "busy").out
    shop.kill(busy)
    assert shop.semel("repair", "nobody").exit == 2


def test_a_backup_is_a_state_directory_that_verifies_and_restores_to_the_same_history(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for session in ("a", "b", "../Odd Name"):
        shop.semel("run", "Pay 17", "--session", session)
    done = shop.semel("backup", "copy", "--json")
    assert done.exit == 0
    heads = {one["session"]: (one["head_seq"], one["head_digest"]) for one in done.json["sessions"]}
    verified = {log["session"]: (log["head_seq"], log["head_digest"]) for log in shop.semel("verify", "--json").json["logs"]}
    assert heads == verified
    assert shop.semel("verify", "copy").exit == 0
    assert "is not empty" in shop.semel("backup", "copy").refusal()
    assert "is not empty" in shop.semel("restore", "copy").refusal()

    restored = shop.semel("restore", "copy", "--state", "new", "--json")
    assert (restored.exit, restored.json["restored"], restored.json["unknown"]) == (0, 3, {})
    again = {log["session"]: (log["head_seq"], log["head_digest"]) for log in shop.semel("verify", "new", "--json").json["logs"]}
    assert again == heads
    listed = shop.semel("ls", "--state", "new", "--json").lines
    assert {line["session"]: line["state"] for line in listed} == dict.fromkeys(heads, "completed")


def test_a_backup_of_a_running_session_parks_its_open_call_when_restored(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    paying = shop.start_and_pay("run", "Pay 17", "--session", "s")
    assert shop.semel("backup", "copy").exit == 0
    shop.let_pay()
    paying.communicate()
    assert paying.returncode == 0
    assert len(shop.ledger) == 1

    restored = shop.semel("restore", "copy", "--state", "new", "--json")
    (call,) = restored.json["unknown"]["s"]
    assert shop.semel("inbox", "--state", "new", "--json").lines[0]["call_key"] == call
    shop.semel("resume", "s", "--state", "new")
    assert len(shop.ledger) == 1
    shutil.copytree(shop.place / "copy", shop.place / "text")
    text = shop.semel("restore", "text", "--state", "other").out
    assert f"call {call[:12]} took effect is unknown" in text
    assert shop.semel("resolve", call, "--happened", "--state", "new").exit == 0


def test_a_backup_that_was_changed_or_is_not_whole_restores_nothing(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    shop.semel("backup", "copy")
    copied = shop.place / "copy" / "sessions" / "s" / "wal.log"
    whole = copied.read_bytes()
    for spoilt in (whole[:-1], whole[: scan(whole).frames[5].offset], whole.replace(b"Pay 17", b"Pay 18")):
        copied.write_bytes(spoilt)
        assert "not what was copied" in shop.semel("restore", "copy", "--state", "new").refusal()
        assert not (shop.place / "new").exists()
    copied.write_bytes(whole)
    listed = shop.place / "copy" / "backup.json"
    told = json.loads(listed.read_bytes())
    for content in (b"", b"{", json.dumps({**told, "schema": "x"}).encode()):
        listed.write_bytes(content)
        assert "is no whole backup" in shop.semel("restore", "copy", "--state", "new").refusal()
    assert "is no whole backup" in shop.semel("restore", "nowhere", "--state", "new").refusal()


def test_a_damaged_session_is_left_out_of_a_backup_by_name(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for session in ("good", "bad"):
        shop.semel("run", "Pay 17", "--session", session)
    damage(shop, "bad", 4)
    done = shop.semel("backup", "copy", "--json")
    assert done.exit == 6
    assert [one["session"] for one in done.json["sessions"]] == ["good"]
    assert done.json["left_out"]["bad"].startswith("log_damaged: ")
