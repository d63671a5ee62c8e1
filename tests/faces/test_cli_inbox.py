"""`inbox` says of every call that waits for a person what is known of it and how to find out."""

import subprocess
from pathlib import Path

from tests.faces.support import AGENT, Shop, open_shop

CRASHED = (
    "Outcome unknown: the runtime ended before a result was recorded. It may have taken effect. Verify before doing it again."
)
ASKS = 'reconcile = ["sh", "./seen.sh", "{call_key}", "{cents}"]\n'
CANNOT_TELL = 'exit "$(cat verdict)"\n'


def shop_that_asks(place: Path) -> Shop:
    """A shop whose bank can be asked about a payment, and cannot tell until somebody writes its verdict down."""
    shop = open_shop(place)
    (place / "agent.toml").write_text(AGENT.format(model="scripted:script.json", effect="once") + ASKS)
    (place / "seen.sh").write_text('echo "$1 $2 $SEMEL_CALL_KEY" >> asked.txt; ' + CANNOT_TELL)
    (place / "verdict").write_text("2\n")
    return shop


def test_an_unknown_call_is_listed_with_what_was_recorded_of_it_and_its_whole_key(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    key = shop.interrupted()
    (item,) = shop.semel("inbox", "--json").lines
    assert item["why"] == CRASHED
    assert item["check"] == {"key": key, "command": None, "reconciles": False}
    told = shop.semel("inbox").out
    assert f"{key[:8]}: {CRASHED}\n" in told
    assert f"{key[:8]}: look for its key {key} where it acts\n" in told


def test_an_unknown_call_of_a_tool_that_can_be_asked_is_listed_with_the_command_that_asks_about_it(tmp_path: Path) -> None:
    place = tmp_path / "a shop"
    place.mkdir()
    shop = shop_that_asks(place)
    key = shop.interrupted()
    (asked,) = (place / "asked.txt").read_text().splitlines()
    (item,) = shop.semel("inbox", "--json").lines
    assert (item["check"]["key"], item["check"]["reconciles"]) == (key, True)
    assert item["check"]["command"] in shop.semel("inbox").out
    assert (place / "asked.txt").read_text().splitlines() == [asked], "to list it asks nobody"
    (place / "verdict").write_text("0\n")
    assert subprocess.run(["sh", "-c", item["check"]["command"]], check=False, cwd="/").returncode == 0
    assert (place / "asked.txt").read_text().splitlines() == [asked, asked], "a person asks what a resume asks"
    assert asked == f"{key} 125 {key}"


def test_a_call_whose_agent_file_is_gone_or_broken_is_still_listed_with_its_key(tmp_path: Path) -> None:
    shop = shop_that_asks(tmp_path)
    key = shop.interrupted()
    for content in ("tools = 1\n", "[tools.pay]\ncommand = []\n", None):
        (tmp_path / "agent.toml").unlink()
        if content is not None:
            (tmp_path / "agent.toml").write_text(content)
        done = shop.semel("inbox", "--json")
        assert (done.exit, done.json["check"]) == (0, {"key": key, "command": None, "reconciles": True})
        assert "or as `reconcile` of its tool does" in shop.semel("inbox").out
        (tmp_path / "agent.toml").touch()


def test_to_list_a_call_runs_nothing_of_its_agent(tmp_path: Path) -> None:
    shop = shop_that_asks(tmp_path)
    shop.interrupted()
    (tmp_path / "spy.py").write_text("open('imported', 'w')\n")
    with (tmp_path / "agent.toml").open("a") as agent:
        agent.write('[tools.look]\npython = "spy:look"\n')
    (item,) = shop.semel("inbox", "--json").lines
    assert item["check"]["command"].endswith(f"{item['call_key']} 125")
    assert not (tmp_path / "imported").exists()


def test_a_call_that_waits_for_an_approval_is_listed_with_since_when_and_by_which_rule(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    with (tmp_path / "agent.toml").open("a") as agent:
        agent.write("ask = true\n")
    assert shop.semel("run", "Pay 17", "--session", "s").exit == 4
    (item,) = shop.semel("inbox", "--json").lines
    heading, row, *why = shop.semel("inbox").out.splitlines()
    cells = dict(zip(heading.split("\t"), row.split("\t"), strict=True))
    assert (cells["call"], cells["since"] != "-", cells["until"]) == (item["call_key"][:8], True, "-")
    assert why == [f"{item['call_key'][:8]}: {item['why']}"]
