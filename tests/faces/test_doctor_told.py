"""`doctor` knows every file that a run makes in the state directory."""

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
