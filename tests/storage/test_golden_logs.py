"""V7, W14, W15, W40: logs of version 1 keep their bytes, open in every later build, and refuse one that lacks a name they use."""

from pathlib import Path

import msgspec
import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core import codec
from semel.core.features import KNOWN
from semel.core.frame import TailKind, incomplete, scan
from semel.core.open_log import state_of
from semel.errors import NewerWriter
from storage.conftest import contents, plant
from storage.golden_logs import HOME, SESSION, encoded, logs

NAMES = sorted(logs())


def golden(name: str) -> bytes:
    return (HOME / f"{name}.log").read_bytes()


def test_every_golden_log_is_there_and_every_feature_of_this_build_is_in_one() -> None:
    assert sorted(path.stem for path in HOME.glob("*.log")) == NAMES
    features = frozenset().union(*(scan(path.read_bytes()).features for path in HOME.rglob("*.log")))
    print(f"{len(NAMES)} golden logs, features {sorted(features)}")
    assert features == KNOWN, "a new feature needs a golden log of its own"


@pytest.mark.parametrize("name", NAMES)
def test_records_are_written_today_as_they_were_then(name: str) -> None:
    assert encoded(logs()[name]) == golden(name)


def test_records_that_are_written_in_another_order_are_noticed_in_every_golden_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_encoder", msgspec.json.Encoder(order="sorted"))
    assert [name for name in NAMES if encoded(logs()[name]) == golden(name)] == []


@pytest.mark.parametrize("name", ["ungated", "plain"])
def test_w40_what_needs_no_feature_keeps_its_version(name: str) -> None:
    assert {frame.ver for frame in scan(golden(name)).frames} == {1, 2}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.anyio
async def test_a_golden_log_opens_and_folds(name: str, tmp_path: Path) -> None:
    plant(tmp_path / "state", golden(name), SESSION)
    writer = await FileStore(tmp_path / "state", SystemClock(), known=KNOWN).open(SESSION)
    state = state_of(writer.frames, incomplete(writer.frames), SESSION)
    await writer.close()
    assert scan(golden(name)).tail.kind is TailKind.CLEAN
    assert state.run is None
    assert writer.head == state.head


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.anyio
async def test_w15_a_build_without_any_one_name_refuses_by_that_name_and_changes_nothing(name: str, tmp_path: Path) -> None:
    used = scan(golden(name)).features
    for missing in sorted(used):
        root = tmp_path / missing.replace("/", "-")
        plant(root, golden(name), SESSION)
        before = contents(root)
        store = FileStore(root, SystemClock(), known=KNOWN - {missing})
        with pytest.raises(NewerWriter) as refused:
            await store.open(SESSION)
        assert refused.value.features == (missing,)
        with pytest.raises(NewerWriter):
            store.read(SESSION)
        assert contents(root) == {f"sessions/{SESSION}/lease": b""} | before
    assert bool(used) == (name not in ("ungated", "plain"))
