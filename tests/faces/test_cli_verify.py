"""`semel verify`: what the bytes of a log are, the blobs that its records name, and the floor that it stands on."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semel.adapters.file.disk import Disk
from semel.adapters.file.floor import FileFloor, encode_floor
from semel.adapters.file.root import Root
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.core.frame import scan
from semel.errors import StoreError
from semel.faces.cli.main import _exit_code
from semel.faces.verify import Progress, Verdict, verify_log
from storage.conftest import contents, plant
from storage.golden_logs import SESSION
from storage.media_log import NAMES, media_log, plant_media
from tests.faces.support import Shop, open_shop, tree


def test_every_blob_that_a_record_names_is_checked(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    blobs = plant_media(shop.state)
    FileFloor(Root(shop.state, Disk())).raise_to(["media-content/v1"])
    sound = shop.semel("verify", SESSION, "--json")
    assert (sound.exit, sound.json["logs"][0]["verdict"], sound.json["logs"][0]["blobs"]) == (0, "clean", 2)
    (blobs / NAMES[0]).write_bytes(b"something else")
    (blobs / NAMES[1]).unlink()
    before = contents(shop.state)
    spoilt = shop.semel("verify", SESSION, "--json")
    (log,) = spoilt.json["logs"]
    assert (spoilt.exit, spoilt.json["damaged"], log["verdict"]) == (6, 1, "incomplete")
    bad = {"name": NAMES[0], "seq": 1, "what": "damaged"}, {"name": NAMES[1], "seq": 1, "what": "missing"}
    assert sorted(log["bad_blobs"], key=str) == sorted(bad, key=str)
    text = shop.semel("verify").out
    assert f"blob {NAMES[1]}, named by record 1, is missing; copy it from a backup" in text
    assert contents(shop.state) == before


def test_a_blob_that_a_planted_name_leads_elsewhere_is_not_looked_at(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    (tmp_path / "secret").write_bytes(b"x")
    plant(shop.state, media_log(["../../../../secret", "/etc/passwd"]), SESSION)
    (log,) = shop.semel("verify", SESSION, "--json").json["logs"]
    assert {blob["what"] for blob in log["bad_blobs"]} == {"missing"}


def test_the_floor_is_shown_with_what_it_lacks_and_refused_where_it_is_damaged(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    plant_media(shop.state)
    (floor,) = shop.semel("verify", "--json").json["floors"]
    assert (floor["names"], floor["lacking"]) == ([], ["media-content/v1"])
    path = shop.state / "wal-feature-floor"
    for names, code in (({"media-content/v1"}, 0), ({"media-content/v1", "later/v9"}, 6)):
        path.write_bytes(encode_floor(frozenset(names)))
        done = shop.semel("verify", "--json")
        assert done.exit == code
        assert done.json["floors"][0]["names"] == sorted(names)
    path.write_bytes(path.read_bytes()[:-1])
    done = shop.semel("verify")
    assert done.exit == 6
    assert "wal-feature-floor is damaged" in done.out


def test_the_regions_of_a_log_tell_what_every_byte_is(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    path, data = shop.log("s"), shop.log("s").read_bytes()
    frames = scan(data).frames

    def regions(content: bytes) -> list[tuple[int, int, str]]:
        path.write_bytes(content)
        done = shop.semel("verify", str(path), "--json")
        return [(one["start"], one["end"], one["kind"]) for one in done.json["logs"][0]["regions"]]

    (path.parent / "status.json").unlink()
    assert regions(data) == [(0, len(data), "good")]
    end = frames[-1].offset
    assert regions(data[:-3]) == [(0, end, "good"), (end, len(data) - 3, "torn")]
    start, stop = frames[4].offset, frames[5].offset
    flipped = data[: start + 2] + bytes([data[start + 2] ^ 1]) + data[start + 3 :]
    assert regions(flipped) == [(0, start, "good"), (start, stop, "damaged"), (stop, len(data), "readable")]
    assert json.loads(shop.semel("verify", str(path), "--json").out)["logs"][0]["behind_records"] == len(frames) - 5


def unreadable_blob(shop: Shop) -> str:
    blob = plant_media(shop.state) / NAMES[0]
    blob.unlink()
    blob.mkdir()
    return SESSION


def file_for_blobs(shop: Shop) -> str:
    blobs = plant_media(shop.state)
    shutil.rmtree(blobs)
    blobs.touch()
    return SESSION


def directory_for_log(shop: Shop) -> str:
    plant(shop.state, b"", "bad").unlink()
    (shop.state / "sessions" / "bad" / "wal.log").mkdir()
    return "bad"


def link_to_nothing(shop: Shop) -> str:
    plant(shop.state, b"", "bad").unlink()
    (shop.state / "sessions" / "bad" / "wal.log").symlink_to("nothing")
    return "bad"


def link_for_status(shop: Shop) -> str:
    path = plant(shop.state, media_log([]), "bad").with_name("status.json")
    path.symlink_to(path)
    return "bad"


def file_for_session(shop: Shop) -> str:
    (shop.state / "sessions" / "bad").touch()
    return "bad"


BAD = (unreadable_blob, file_for_blobs, directory_for_log, link_to_nothing, link_for_status, file_for_session)


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_a_log_that_cannot_be_read_has_its_verdict_and_the_others_have_theirs(
    tmp_path: Path, spoil: Callable[[Shop], str]
) -> None:
    shop = open_shop(tmp_path)
    for session in ("a", "z"):
        shop.semel("run", "Pay 17", "--session", session)
    bad = spoil(shop)
    before = tree(shop.state)
    for words in ((), (str(shop.state),)):
        done = shop.semel("verify", *words, "--json")
        verdicts = {Path(one["path"]).parent.name: one["verdict"] for one in done.json["logs"]}
        assert (done.exit, verdicts.pop("a"), verdicts.pop("z"), done.json["damaged"]) == (6, "clean", "clean", 1)
        assert list(verdicts) == [bad]
        assert verdicts[bad] in {"unreadable", "incomplete"}
    text = shop.semel("verify").out
    assert "unreadable" in text
    assert "a: clean" in text
    assert "z: clean" in text
    assert tree(shop.state) == before


def test_a_pipe_in_place_of_a_log_is_not_waited_for(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    done = shop.semel("verify", "pipe", "--json")
    assert (done.exit, done.json["logs"][0]["reason"]) == (6, "pipe cannot be read: it is no regular file")


def test_a_session_whose_log_is_gone_is_damaged_and_not_unknown(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    shop.log("s").unlink()
    done = shop.semel("verify", "s", "--json")
    (log,) = done.json["logs"]
    assert (done.exit, log["verdict"], log["session"]) == (6, "damaged", "s")
    assert shop.semel("verify", "s").exit == 6
    shop.log("s").with_name("status.json").unlink()  # the control: nothing remembers it
    assert "is no session here and no file" in shop.semel("verify", "s").refusal()


def test_a_word_is_a_path_where_no_session_can_be_called_so(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    path = tmp_path / ("a" * 120) / ("b" * 120) / "wal.log"
    path.parent.mkdir(parents=True)
    shutil.copy(shop.log("s"), path)
    for word in (str(path), str(path.parent), os.path.relpath(path, tmp_path)):
        done = shop.semel("verify", word, "--json")
        assert (done.exit, [log["verdict"] for log in done.json["logs"]]) == (0, ["clean"])
    for word in (str(path) + "x", "x" * 5000, "a/" * 3000):  # the control: neither is there
        assert "is no session here and no file" in shop.semel("verify", word).refusal()
    (tmp_path / "file").touch()
    assert shop.semel("verify", str(path), "--state", "file").exit == 0


def second_name(path: Path) -> None:
    path.with_name("other").hardlink_to(path)


def moved_behind_a_link(path: Path) -> None:
    elsewhere = next(above for above in path.parents if above.name == ".semel").with_name(path.name)
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


FILES, DIRECTORIES = ("wal.log", "status.json", f"blobs/{NAMES[0]}"), ("blobs", ".")
UNTRUSTED = (
    *((name, second_name) for name in FILES),
    *((name, spoil) for name in (*FILES, *DIRECTORIES) for spoil in (moved_behind_a_link, open_to_all)),
)


@pytest.mark.parametrize(("name", "spoil"), UNTRUSTED)
def test_nothing_is_clean_that_no_session_is_opened_over(tmp_path: Path, name: str, spoil: Callable[[Path], None]) -> None:
    shop = open_shop(tmp_path)
    path = plant_media(shop.state).parent
    (path / "status.json").write_bytes(b"{}")
    (path / "status.json").chmod(0o600)
    sound = [log["verdict"] for log in shop.semel("verify", "--json").json["logs"]]
    assert sound == ["clean"]  # the control
    spoil(path / name)
    done = shop.semel("verify", "--json")
    (log,) = done.json["logs"]
    blob = name.startswith("blobs")
    assert (done.exit, log["verdict"]) == (6, "incomplete" if blob else "unreadable")
    why = [one["why"] for one in log["bad_blobs"]] if blob else [log["reason"]]
    assert all("Keep the state directory on a local disk" in one for one in why if one)
    if not blob:
        assert shop.semel("show", SESSION).exit != 0


def test_a_log_that_was_copied_elsewhere_may_be_behind_a_link(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    plant(shop.state, media_log([]), SESSION)
    shutil.copy(shop.log(SESSION), tmp_path / "copied.log")
    (tmp_path / "link").symlink_to("copied.log")
    assert shop.semel("verify", "link").exit == 0


@pytest.mark.parametrize(("held", "looks"), [(False, 1), (True, 3)])
def test_a_damaged_log_is_looked_at_again_only_while_somebody_writes_to_it_and_each_look_is_told(
    tmp_path: Path, held: bool, looks: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    log = media_log([])
    path = plant(tmp_path, log, SESSION)
    writer = asyncio.run(FileStore(tmp_path, SystemClock(), known=KNOWN).open(SESSION)) if held else None
    path.write_bytes(log[:30] + b"x" + log[31:])
    seen: list[int] = []

    def look(path: Path, session: str | None, progress: Progress, **given: Any) -> Verdict:
        seen.append(0)

        def told(count: int) -> None:
            seen[-1] += count
            progress(count)

        return verify_log(path, session, told, **given)

    monkeypatch.setattr("semel.faces.cli.verify.verify_log", look)
    for word in ((SESSION,), ()):
        seen.clear()
        assert _exit_code(["verify", *word, "--state", str(tmp_path)]) == 6
        assert seen == [len(log)] * looks
    assert "damaged at byte 0" in capfd.readouterr().out
    if writer is not None:
        writer.abandon()


def test_a_sound_log_that_is_held_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: it is the damage that is looked at again."""
    plant(tmp_path, media_log([]), SESSION)
    writer = asyncio.run(FileStore(tmp_path, SystemClock(), known=KNOWN).open(SESSION))
    looks: list[object] = []
    monkeypatch.setattr(
        "semel.faces.cli.verify.verify_log", lambda *words, **given: looks.append(words) or verify_log(*words, **given)
    )
    assert _exit_code(["verify", SESSION, "--state", str(tmp_path)]) == 0
    assert len(looks) == 1
    writer.abandon()


def test_a_check_that_ends_at_what_it_cannot_read_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The control: where the first one that cannot be read raises, as it did, nobody gets a verdict."""
    plant(tmp_path, media_log([]), SESSION)
    (tmp_path / "sessions" / "a").touch()
    assert _exit_code(["verify", "--json", "--state", str(tmp_path)]) == 6
    assert [log["verdict"] for log in json.loads(capfd.readouterr().out)["logs"]] == ["unreadable", "clean"]

    def refuse(path: Path, _session: str | None, why: str) -> Verdict:
        raise StoreError(f"{path}: {why}")

    monkeypatch.setattr("semel.faces.verify.unreadable", refuse)
    assert _exit_code(["verify", "--json", "--state", str(tmp_path)]) == 1
    assert "logs" not in json.loads(capfd.readouterr().out)
