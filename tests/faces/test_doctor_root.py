"""What `doctor` says of the state directory itself: its files, and who may get at them."""

from pathlib import Path

from tests.faces.support import open_shop


def test_doctor_knows_the_marks_of_who_was_told_that_a_session_waits(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    assert shop.semel("resume", "s", SEMEL_ON_PARKED="true").exit == 3
    assert len(list((shop.state / "told").iterdir())) == 1
    (shop.state / "notes.txt").touch()
    found = shop.semel("doctor", "--json").json["findings"]
    strangers = [one["about"] for one in found if one["what"] == "is none of semel's files"]
    assert strangers == [str(shop.state / "notes.txt")], "and what is no file of semel's is still named"


def test_a3_a_state_directory_that_its_group_may_write_to_is_used_and_noted_and_one_for_everybody_is_refused(
    tmp_path: Path,
) -> None:
    shop = open_shop(tmp_path)
    shop.state.mkdir(mode=0o700)

    def noted(mode: int) -> list[str]:
        shop.state.chmod(mode)
        found = shop.semel("doctor", "--json").json["findings"]
        return [one["advice"] for one in found if one["about"] == str(shop.state) and one["weight"] != "fine"]

    assert noted(0o770) == [f"if nobody else should, `chmod go-rwx {shop.state}`"]
    assert shop.semel("run", "Pay 17", "--session", "s").exit == 0
    assert (shop.state / "sessions").stat().st_mode & 0o777 == 0o700, "what is in it is as private as ever"
    assert noted(0o700) == []
    shop.state.chmod(0o777)
    assert "may be written by everybody" in shop.semel("run", "Pay 17", "--session", "t").refusal()
