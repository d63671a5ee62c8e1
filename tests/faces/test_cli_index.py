"""The index and the command line: what only it remembers is told by every verb, and never lost without consent."""

import shutil
import subprocess
import sys
from pathlib import Path

from semel.adapters.file.names import directory_name
from semel.core.frame import scan
from tests.faces.support import Done, Shop, open_shop, tree


def cut_unseen(shop: Shop, session: str) -> bytes:
    """Lose the last record of a listed session, so that only the index tells; returns the log as it is then."""
    assert shop.semel("ls").exit == 0
    path = shop.log(session)
    path.write_bytes(path.read_bytes()[: scan(path.read_bytes()).frames[-1].offset])
    (path.parent / "status.json").unlink()
    return path.read_bytes()


def test_reindex_keeps_what_it_knew_of_a_log_that_lost_records_and_names_it(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "cut")
    shop.semel("run", "Pay 18", "--session", "whole")
    cut_unseen(shop, "cut")
    for _ in range(2):
        done = shop.semel("reindex", "--json")
        assert (done.exit, done.json["sessions"]) == (6, 1)
        assert "was durable" in done.json["unreadable"]["cut"]
        assert shop.semel("verify", "cut").exit == 6
        assert shop.semel("resume", "cut").exit == 6
    assert "what was remembered of it is kept" in shop.semel("reindex").err
    (shop.state / "index.db").unlink()  # control: without it nobody remembers, and nothing can be told
    assert (shop.semel("reindex").exit, shop.semel("verify", "cut").exit) == (0, 0)


def test_reindex_writes_a_damaged_index_anew_and_says_so(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    (shop.state / "index.db").write_bytes(b"SQLite format 3\0" + b"x" * 9000)
    (shop.state / "index.db").chmod(0o600)
    done = shop.semel("doctor")
    assert "index.db: is damaged" in done.out
    assert done.exit == 0
    done = shop.semel("reindex")
    assert (done.exit, done.out) == (0, "1 sessions indexed\n")
    assert "index.db was damaged" in done.err
    assert shop.semel("reindex").err == ""  # control: a sound one says nothing
    assert "index.db: sessions that it knows: 1" in shop.semel("doctor").out


def test_a_listing_a_check_and_a_run_say_that_the_index_is_damaged(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    (shop.state / "index.db").write_bytes(b"nonsense" * 600)
    (shop.state / "index.db").chmod(0o600)
    for words in (("verify",), ("verify", "s"), ("resume", "s")):
        assert shop.semel(*words).err.count("index.db is damaged") == 1
    for verb in ("ls", "inbox"):
        (shop.state / "index.db").write_bytes(b"nonsense" * 600)
        (line,) = [line for line in shop.semel(verb).err.splitlines() if "index.db" in line]
        assert "index.db was damaged" in line
        assert shop.semel(verb).err.count("index.db") == 0


def test_a_session_that_only_the_index_remembers_is_named_as_damaged_by_whoever_looks(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    hidden = "Ä" * 90  # its directory's name does not tell its id
    for session in ("s", hidden, "whole"):
        shop.semel("run", "Pay 17", "--session", session)
    assert shop.semel("ls").exit == 0
    for session in ("s", directory_name(hidden)):
        (shop.log(session).parent / "status.json").unlink()
        shop.log(session).unlink()
    before = tree(tmp_path)
    listed = {one["session"]: one["error"] for one in shop.semel("ls", "--json").lines}
    assert {session: error and error["code"] for session, error in listed.items()} == {
        "s": "log_damaged",
        hidden: "log_damaged",
        "whole": None,
    }
    assert shop.semel("inbox").exit == 6
    for target, count in ((), 3), (("s",), 1), ((str(shop.state),), 3), ((str(shop.log("s").parent),), 1):
        done = shop.semel("verify", *target, "--json")
        verdicts = sorted(log["verdict"] for log in done.json["logs"])
        assert (done.exit, verdicts) == (6, ["clean", "damaged", "damaged"][-1 if count == 1 else 0 :])
    assert "was durable" in shop.semel("show", "s").refusal()
    done = shop.semel("doctor")
    assert (done.exit, done.out.count("was durable")) == (1, 2)
    done = shop.semel("backup", str(tmp_path / "copy"))
    assert (done.exit, done.out) == (6, f"1 sessions copied to {tmp_path / 'copy'}\n")
    assert done.err.count("left out") == 2
    shop.log("s").write_bytes(b"")
    shop.log("s").chmod(0o600)
    assert shop.semel("verify", "s").exit == 6
    shop.log("s").unlink()
    assert {path: content for path, content in tree(tmp_path).items() if "copy" not in str(path)} == before
    (shop.state / "index.db").unlink()  # control: nobody remembers them any more
    assert shop.semel("verify").exit == shop.semel("doctor").exit == 0


def test_a_session_that_somebody_removed_is_named_as_a_note_and_can_be_made_anew(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for session in ("s", "whole"):
        shop.semel("run", "Pay 17", "--session", session)
    shop.semel("ls")
    shutil.rmtree(shop.log("s").parent)
    done = shop.semel("doctor")
    assert done.exit == 0
    assert "s: had 15 records, as the index remembers, and its directory was removed" in done.out
    done = shop.semel("verify")
    assert done.exit == 0
    assert "s had 15 records, as the index remembers, and its directory was removed" in done.err
    assert shop.semel("reindex").exit == 0
    assert "its directory was removed" in shop.semel("doctor").out
    assert shop.semel("run", "Pay 17", "--session", "s", "--key", "new").exit == 0
    shop.semel("ls")
    assert shop.semel("verify").err == ""


def test_reindex_says_which_sessions_it_could_not_write_down(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for session in ("one", "two"):
        shop.semel("run", "Pay 17", "--session", session)
    shop.semel("ls")
    known = (shop.state / "index.db").read_bytes()

    def full(*words: str) -> Done:
        """The command on a disk that takes not a byte more of any file."""
        ran = subprocess.run(
            ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "semel", *words],
            cwd=shop.place,
            env=shop.environment({}),
            capture_output=True,
            text=True,
            check=False,
        )
        return Done(ran.returncode, ran.stdout, ran.stderr)

    done = full("reindex", "--json")
    assert (done.exit, done.json["sessions"], sorted(done.json["unwritten"])) == (1, 0, ["one", "two"])
    done = full("reindex")
    assert (done.exit, done.out, done.err.count("could not be indexed")) == (1, "0 sessions indexed\n", 2)
    assert full("ls").exit == 0  # a listing needs no more than the logs
    (shop.state / "index.db").unlink()
    assert (full("reindex").exit, full("ls").exit) == (1, 0)
    (shop.state / "index.db").write_bytes(known)
    (shop.state / "index.db").chmod(0o600)
    done = shop.semel("reindex", "--json")  # control
    assert (done.exit, done.json) == (0, {"sessions": 2, "unreadable": {}, "unwritten": {}})
