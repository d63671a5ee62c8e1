"""Where the socket is, whom it is trusted to be, and that a name which leads nowhere blocks nobody (A2, A41)."""

import asyncio
import os
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from semel import Completed, Runtime
from semel.adapters.control import place as module
from semel.adapters.control.client import UnixControl
from semel.adapters.control.lines import Bounds
from semel.adapters.control.place import PATH_BYTES_MOST, RUNTIME_VARIABLE, is_trusted, make_socket
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.engine.resume import Ground
from semel.errors import SessionBusy, StoreError
from semel.faces import owner as asking
from semel.faces.agentref import load_agent
from semel.faces.owner import ask_owner
from tests.control.support import Caller, OwnedShop, owned
from tests.faces.support import open_shop
from tests.support.notrun import not_run

OTHER_USER = 12_345


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with a short name, in which the temporary directory of this process is, too."""
    found = Path(tempfile.mkdtemp())
    (found / "tmp").mkdir()
    (found / "run").mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(found / "tmp"))
    yield found
    shutil.rmtree(found)


def made(runtime: Path | None) -> Path:
    bound, path = make_socket({} if runtime is None else {RUNTIME_VARIABLE: str(runtime)})
    with bound:
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.lstat().st_mode) == 0o700
        assert len(os.fsencode(path)) <= PATH_BYTES_MOST
        assert is_trusted(path)
    return path


def test_a_socket_is_in_the_runtime_directory_of_its_user_else_in_the_temporary_one(short: Path) -> None:
    old = os.umask(0)
    try:
        assert made(short / "run").parent == short / "run/semel"
        assert made(None).parent == short / f"tmp/semel-{os.geteuid()}"
        assert made(Path("relative")).parent == short / f"tmp/semel-{os.geteuid()}"
        assert made(short / ("x" * PATH_BYTES_MOST)).parent == short / f"tmp/semel-{os.geteuid()}"
        assert made(short / "missing").parent == short / f"tmp/semel-{os.geteuid()}"
    finally:
        os.umask(old)


def plant_link(path: Path) -> None:
    target = path.with_name(f"{path.name}.target")
    target.mkdir(mode=0o700)
    path.symlink_to(target)


def plant_open(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def plant_foreign(path: Path) -> None:
    if os.geteuid() != 0:
        not_run("only root can make a directory of another user")
    path.mkdir(mode=0o700)
    os.chown(path, OTHER_USER, OTHER_USER)


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "link": plant_link,
    "dangling": lambda path: path.symlink_to("nowhere"),
    "file": lambda path: path.write_text(""),
    "fifo": os.mkfifo,
    "open": plant_open,
    "foreign": plant_foreign,
}


@pytest.mark.parametrize("plant", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_refuses_a41_a_directory_that_somebody_planted_is_passed_over(short: Path, plant: Callable[[Path], object]) -> None:
    plant(short / f"tmp/semel-{os.geteuid()}")
    found = made(None)
    assert found.parent.name.startswith(f"semel-{os.geteuid()}-")
    assert found.parent.parent == short / "tmp"


def test_without_any_place_the_reasons_are_named_and_the_session_works_all_the_same(
    tmp_path: Path, short: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (short / "tmp").rmdir()
    monkeypatch.delenv(RUNTIME_VARIABLE, raising=False)
    with pytest.raises(StoreError, match=f"semel-{os.geteuid()}: No such file or directory"):
        make_socket({})
    open_shop(tmp_path, {"text": "hello"})
    agent = load_agent(str(tmp_path / "agent.toml"))

    async def run() -> tuple[str | None, object]:
        async with Runtime(tmp_path / "state", agents=[agent]) as runtime:
            run = await runtime.session("s", agent=agent).send("Hi")
            return runtime.unreachable, await run.result()

    unreachable, result = asyncio.run(run())
    assert unreachable is not None
    assert "No such file or directory" in unreachable
    assert isinstance(result, Completed)


def bind(path: Path, mode: int = 0o600) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    path.chmod(mode)


def bind_foreign(path: Path) -> None:
    if os.geteuid() != 0:
        not_run("only root can give a socket to another user")
    bind(path)
    os.chown(path, OTHER_USER, OTHER_USER)


def link_to_socket(path: Path) -> None:
    bind(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


AT_THE_ADDRESS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "stale_socket": bind,
    "open_socket": lambda path: bind(path, 0o666),
    "foreign_socket": bind_foreign,
    "link_to_a_socket": link_to_socket,
    "file": lambda path: path.write_text(""),
    "fifo": os.mkfifo,
    "directory": os.mkdir,
}


@pytest.mark.parametrize("name", AT_THE_ADDRESS)
def test_a_socket_is_trusted_only_if_it_is_ours_alone_and_no_link(short: Path, name: str) -> None:
    path = short / "run" / "x.sock"
    AT_THE_ADDRESS[name](path)
    assert is_trusted(path) == (name == "stale_socket")
    path.parent.chmod(0o755)
    assert not is_trusted(path), "a directory that others can enter"


def ground_of(shop: OwnedShop, answer_seconds: float = 30.0) -> Ground:
    store = FileStore(shop.state, SystemClock(), known=KNOWN)
    control = UnixControl(store, Bounds(answer_seconds=answer_seconds))
    return Ground(store=store, clock=SystemClock(), ids=SystemIds(), control=control)


def steer(shop: OwnedShop, key: str = "k", answer_seconds: float = 30.0) -> object:
    args = {"text": "Hurry", "key": key, "delivery": "steer"}
    return asyncio.run(ask_owner(ground_of(shop, answer_seconds), "s", "send", args))


def test_whatever_lies_at_the_address_of_an_owner_that_lives_is_refused_soon_and_the_lease_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "REACH_SECONDS", 0.1)
    with owned(tmp_path) as owner:
        address, kept = Path(owner.shop.lease()["socket"]), tmp_path / "kept.sock"
        address.rename(kept)
        for name, plant in AT_THE_ADDRESS.items():
            plant(address)
            with pytest.raises(SessionBusy, match=r"does not answer .* again with --key k") as busy:
                steer(owner.shop)
            assert busy.value.exit == 7, name
            for path in (address, address.with_suffix(".real")):
                path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        assert "steered" not in owner.shop.types()
        kept.rename(address)
        assert steer(owner.shop) is not None
        assert owner.shop.types().count("steered") == 1


@pytest.mark.parametrize("name", ["stale_socket", "fifo", "link_to_a_socket"])
def test_whatever_lies_at_the_address_of_an_owner_that_is_dead_blocks_nobody(tmp_path: Path, name: str) -> None:
    with owned(tmp_path) as owner:
        shop = owner.shop
        shop.kill(owner.process)
        address = Path(shop.lease()["socket"])
        address.unlink()
        AT_THE_ADDRESS[name](address)
        assert steer(shop) is None, "nobody holds the session"
        assert shop.semel("steer", "Hurry", "--session", "s").exit == 0
        for path in (address, address.with_suffix(".real")):
            path.unlink(missing_ok=True)


def test_an_owner_that_is_stopped_by_a_signal_makes_nobody_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "REACH_SECONDS", 0.1)
    with owned(tmp_path) as owner:
        owner.process.send_signal(signal.SIGSTOP)
        with pytest.raises(SessionBusy, match="did not answer in"):
            steer(owner.shop, answer_seconds=0.1)
        owner.process.send_signal(signal.SIGCONT)
        assert steer(owner.shop) is not None
        assert owner.shop.types().count("steered") == 1, "what the stopped process was sent and what came later are one message"


def test_a_copy_of_a_state_directory_reaches_nobody_through_the_lease_that_was_copied(tmp_path: Path) -> None:
    with owned(tmp_path) as owner:
        shutil.copytree(owner.shop.state, tmp_path / "copy")
        done = owner.shop.semel("steer", "Hurry", "--session", "s", "--state", "copy", "--json")
        assert (done.exit, done.json["owner"]) == (0, None)
        assert "steered" not in owner.shop.types()


@pytest.mark.parametrize("other", [{"fence": 99}, {"lineage": "0" * 32}, {"session": "t"}], ids=["fence", "lineage", "session"])
def test_an_owner_answers_for_the_tenure_and_the_log_that_are_meant_and_for_no_other(
    tmp_path: Path, other: dict[str, object]
) -> None:
    with owned(tmp_path) as owner, Caller(owner.shop) as caller:
        caller.send({**caller.request("send", text="Hurry", key="k", delivery="steer"), **other})
        assert caller.hear()["error"]["code"] == "not_held"
        assert "steered" not in owner.shop.types()


def test_a_lease_that_names_a_process_which_is_another_one_by_now_names_no_address(tmp_path: Path) -> None:
    with owned(tmp_path) as owner:
        lease = owner.shop.state / "sessions/s/lease"
        contact = ground_of(owner.shop).control.contact("s")
        assert contact.address == owner.shop.lease()["socket"]
        content = lease.read_bytes()
        started = f'"started":"{owner.shop.lease()["started"]}"'.encode()
        lease.write_bytes(content.replace(started, b'"started":"1"'))
        assert ground_of(owner.shop).control.contact("s").address is None
        lease.write_bytes(content)


def test_what_killed_processes_left_is_swept_and_nothing_else(short: Path) -> None:
    directory = made(short / "run").parent
    old = module._STALE_SECONDS * 2
    bind(directory / "old.sock")
    bind(directory / "young.sock")
    (directory / "notes.txt").write_text("")
    (directory / "file.sock").write_text("")
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(directory / "alive.sock"))
        (directory / "alive.sock").chmod(0o600)
        alive.listen()
        for name in ("old", "alive", "file"):
            moment = (directory / f"{name}.sock").lstat().st_mtime - old
            os.utime(directory / f"{name}.sock", (moment, moment))
        newest = made(short / "run")
    left = {path.name for path in directory.iterdir()} - {newest.name}
    assert {"young.sock", "notes.txt", "file.sock", "alive.sock"} <= left
    assert "old.sock" not in left


def test_a_process_that_ends_in_good_order_takes_its_socket_along(tmp_path: Path) -> None:
    with owned(tmp_path) as owner:
        address = Path(owner.shop.lease()["socket"])
        assert address.exists()
        owner.tell("leave")
        owner.died()
        assert not address.exists()
