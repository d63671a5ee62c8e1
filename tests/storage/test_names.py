"""Session ids as directory names: nothing leaves the directory, collides by case, or is too long (A1)."""

import hashlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.adapters.file.names import directory_name, is_digest, session_id
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.errors import BadSessionId
from storage.logs import lineage_payload, payload

SPELLINGS = {
    "box": "box",
    "a-b_c-0": "a-b_c-0",
    "-rf": "-rf",
    "x" * 64: "x" * 64,
    "x" * 65: "x" * 65,  # escaped, though nothing needs it: no plain name is that long
    "x" * 120: "x" * 120,
    "x" * 121: "=" + hashlib.sha256(b"x" * 121).hexdigest(),
    "x" * 200: "=" + hashlib.sha256(b"x" * 200).hexdigest(),
    "Box": "=42ox",
    "BOX": "=42=4f=58",
    "../../etc/passwd": "=2e=2e=2f=2e=2e=2fetc=2fpasswd",
    "/etc/passwd": "=2fetc=2fpasswd",
    ".": "=2e",
    "..": "=2e=2e",
    "...": "=2e=2e=2e",
    "~": "=7e",
    "..%2f..": "=2e=2e=252f=2e=2e",
    "%2e%2e": "=252e=252e",
    "a\\b": "a=5cb",
    "c:\\x": "c=3a=5cx",
    "con": "con",
    "box ": "box=20",
    "\n": "=0a",
    "\x1b[31m": "=1b=5b31m",
    "ü": "=c3=bc",
    "‥": "=e2=80=a5",
    "日本": "=e6=97=a5=e6=9c=ac",
    "a=b": "a=3db",
    "=42ox": "=3d42ox",
    "customer.42@acme.example": "customer=2e42=40acme=2eexample",
    "A" * 40: "=41" * 40,
    "A" * 41: "=" + hashlib.sha256(b"A" * 41).hexdigest(),
}


@pytest.mark.parametrize(("session", "name"), SPELLINGS.items())
def test_a_session_id_becomes_one_safe_directory_name(session: str, name: str) -> None:
    assert directory_name(session) == name
    assert session_id(name) == (None if is_digest(name) else session)


@pytest.mark.parametrize("session", ["", "x" * 201, "ü" * 101, "\ud800", "a\0b", "\0", b"bytes", None, 7])
def test_what_is_no_session_id_is_refused_before_anything_is_touched(session: object, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "state", SystemClock(), known=frozenset())
    for act in (directory_name, store.exists, store.read, store.read_status, store.owner, store.log_path):
        with pytest.raises(BadSessionId):
            act(session)  # type: ignore[arg-type]  # not text, on purpose
    assert not (tmp_path / "state").exists()


def test_an_id_that_would_spell_the_digest_of_another_gets_a_digest_of_its_own() -> None:
    victim = next(
        f"{n}".ljust(150, "x") for n in range(1000) if hashlib.sha256(f"{n}".ljust(150, "x").encode()).digest()[0] == 0x41
    )
    digest = hashlib.sha256(victim.encode()).hexdigest()
    attacker = "A" + digest[2:]
    assert directory_name(victim) == "=" + digest
    assert directory_name(attacker) != directory_name(victim)
    assert directory_name(attacker) == "=" + hashlib.sha256(attacker.encode()).hexdigest()


@settings(deadline=None)
@given(st.text(min_size=1, max_size=60).filter(lambda text: "\0" not in text), st.text(min_size=1, max_size=60))
def test_any_two_ids_have_different_names_that_differ_in_more_than_case(one: str, other: str) -> None:
    name = directory_name(one)
    assert 1 <= len(name) <= 120
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-=")
    assert session_id(name) in (one, None)
    if one != other and "\0" not in other:
        assert name != directory_name(other)


@pytest.mark.parametrize("name", ["", ".", "..", "Box", "a b", "=4", "=zz", "=62ox", "=ff", "x" * 121, "=2f" * 41, "=c3"])
def test_a_directory_that_no_session_can_have_made_is_none_of_ours(name: str) -> None:
    assert session_id(name) is None


@pytest.mark.anyio
async def test_sessions_are_listed_by_their_ids_also_when_only_their_log_knows_them(tmp_path: Path) -> None:
    store = FileStore(tmp_path, SystemClock(), known=frozenset())
    ids = sorted(SPELLINGS)
    for session in ids:
        writer = await store.open(session)
        await writer.append([lineage_payload(session), payload(10)])
        await writer.close()
    for stranger in ("Box", "=" + "0" * 64, "lost+found"):
        (tmp_path / "sessions" / stranger).mkdir(mode=0o700)
    assert store.sessions() == ids
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["sessions"]
    assert all(store.read(session).head == 1 for session in ids)
