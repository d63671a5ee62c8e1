"""One contract, three media: memory, files with locks of the open file, files with flock; syncs inline and in a thread."""

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from semel.adapters.file.locks import OpenFileLocks, WholeFileLocks
from semel.ports import blobs, floor, log
from semel.testing.conformance import (
    FLOOR_CHECKS,
    LEASE_CHECKS,
    LOG_CHECKS,
    FloorBench,
    LogBench,
    check_floor,
    check_leases,
    check_log,
)
from semel.testing.conformance_blobs import BLOB_CHECKS
from storage.benches import FileBench, FileFloorBench, MemoryBench, MemoryFloorBench

MakeLogBench = Callable[[Path], LogBench]
LOG_BENCHES: dict[str, MakeLogBench] = {
    "memory": lambda root: MemoryBench(),
    "file": FileBench,
    "file, syncs in a thread": lambda root: FileBench(root, inline=False),
    "file, locked by flock": lambda root: FileBench(root, locks=WholeFileLocks()),
}
FLOOR_BENCHES: dict[str, Callable[[Path], FloorBench]] = {
    "memory": lambda root: MemoryFloorBench(),
    "file": FileFloorBench,
    "file, locked by flock": lambda root: FileFloorBench(root, WholeFileLocks()),
}


@pytest.mark.parametrize("medium", LOG_BENCHES)
@pytest.mark.parametrize("line", [*LOG_CHECKS, *LEASE_CHECKS])
@pytest.mark.anyio
async def test_a_store_keeps_each_line_of_the_log_contract(line: str, medium: str, tmp_path: Path) -> None:
    await {**LOG_CHECKS, **LEASE_CHECKS}[line](LOG_BENCHES[medium](tmp_path / "state"))


@pytest.mark.parametrize("medium", FLOOR_BENCHES)
@pytest.mark.parametrize("line", FLOOR_CHECKS)
def test_a_floor_keeps_each_line_of_its_contract(line: str, medium: str, tmp_path: Path) -> None:
    FLOOR_CHECKS[line](FLOOR_BENCHES[medium](tmp_path / "state"))


@pytest.mark.anyio
async def test_the_suites_run_whole_for_an_adapter_of_somebody_else(tmp_path: Path) -> None:
    numbers = count()
    await check_log(MemoryBench)
    await check_leases(lambda: FileBench(tmp_path / str(next(numbers)), locks=OpenFileLocks()))
    check_floor(MemoryFloorBench)


def test_the_suites_have_a_check_for_every_numbered_line_of_the_ports() -> None:
    checks = [*LOG_CHECKS, *LEASE_CHECKS, *FLOOR_CHECKS, *BLOB_CHECKS]
    promised = [re.findall(r"^ *([A-Z]+-[0-9]+) ", port.__doc__ or "", re.MULTILINE) for port in (log, floor, blobs)]
    assert {name.split()[0] for name in checks} == {line for lines in promised for line in lines}
    assert [len(lines) for lines in promised] == [10 + 13, 4, 5]
