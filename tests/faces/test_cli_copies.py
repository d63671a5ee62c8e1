"""P2: a backup, and what a restore that died has left, at the command line: they are read, and say what they are."""

import asyncio
from pathlib import Path

import pytest

from semel import Runtime
from semel.adapters.file.backup import restore
from semel.adapters.file.root import Root
from semel.core.features import KNOWN
from semel.errors import IsCopy
from semel.faces.agentref import load_agent
from semel.settings import Settings
from semel.testing.faults import Crashed, Fault, FaultyDisk
from semel.wiring import parked_hook
from tests.faces.support import Shop, open_shop, tree

LOOKS = ("ls", "show s", "tail s", "inbox", "verify")
WRITES = ("resume s", "send more --session s", "run more --session other", "repair s --accept-loss", "reindex")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A backup that was made while a payment was under way, which then came to its end."""
    shop = open_shop(tmp_path)
    paying = shop.start_and_pay("run", "Pay 17", "--session", "s")
    assert shop.semel("backup", "copy").exit == 0
    shop.let_pay()
    paying.communicate()
    assert paying.returncode == 0
    assert len(shop.ledger) == 1
    return shop


def test_p2_a_backup_that_is_used_as_a_state_directory_pays_nothing_again_and_says_what_it_is(shop: Shop) -> None:
    copy, before = shop.place / "copy", tree(shop.place / "copy")
    for words in WRITES:
        done = shop.semel(*words.split(), "--state", "copy")
        assert (done.exit, "is a backup" in done.err) == (2, True), (words, done)
        assert f"`semel restore {copy} --state NEW`" in done.err
    for words in LOOKS:
        done = shop.semel(*words.split(), "--state", "copy")
        assert (done.exit, "is a backup" in done.err) == (0, True), (words, done)
    assert "is a backup" in shop.semel("verify", "copy").err
    assert tree(copy) == before
    assert len(shop.ledger) == 1
    assert "is a backup" not in shop.semel("ls").err
    done = shop.semel("doctor", "--json", "--state", "copy")
    (found,) = [one for one in done.json["findings"] if one["weight"] != "fine"]
    assert "is a backup" in found["what"]
    assert "semel restore" in found["advice"]
    assert (done.exit, "resume" in done.out) == (0, False)


def test_nobody_is_told_of_what_waits_in_a_backup(tmp_path: Path) -> None:
    for name in ("work", "copy"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "copy" / "backup.json").write_bytes(b"{}")
    assert parked_hook(Settings(state=tmp_path / "copy", on_parked="true")) is None
    assert parked_hook(Settings(state=tmp_path / "work", on_parked="true")) is not None


def test_p2_a_runtime_on_a_backup_carries_nothing_on(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.place)

    async def act() -> None:
        async with Runtime(agents=[load_agent("agent.toml")], state=shop.place / "copy") as runtime:
            with pytest.raises(IsCopy, match="semel restore"):
                await runtime.resume("s")
            while not runtime.unrecovered:
                await asyncio.sleep(0.01)
            assert isinstance(runtime.unrecovered["s"], IsCopy)

    asyncio.run(act())
    assert len(shop.ledger) == 1


def test_a_restore_that_died_is_a_problem_with_a_remedy_and_nothing_goes_on_with_it(shop: Shop) -> None:
    counting = FaultyDisk()
    restore(shop.place / "copy", Root(shop.place / "counted", counting), KNOWN)
    new, disk = shop.place / "new", FaultyDisk(Fault(at=len(counting.calls) - 3))
    with pytest.raises(Crashed):
        restore(shop.place / "copy", Root(new, disk), KNOWN)
    disk.bury()
    remedy = f"semel restore {shop.place / 'copy'} --state {new}"
    for words in ("resume s", "repair s --accept-loss"):
        done = shop.semel(*words.split(), "--state", "new")
        assert (done.exit, remedy in done.err) == (2, True), (words, done)
    done = shop.semel("doctor", "--json", "--state", "new")
    (problem,) = [one for one in done.json["findings"] if one["weight"] == "problem"]
    assert remedy in problem["advice"]
    assert "repair" not in done.out
    assert remedy in shop.semel("ls", "--state", "new").err
    for path in sorted(new.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert shop.semel("restore", "copy", "--state", "new", "--json").json["unknown"]["s"]
    assert shop.semel("resume", "s", "--state", "new").exit == 3
    assert len(shop.ledger) == 1
