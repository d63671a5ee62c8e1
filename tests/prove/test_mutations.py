"""Mutants of the modules that durable data depends on: every small change that can be made to them, which some test must notice.

Each mutant is tried against the quick tests of its module first, and if those let it pass, against the sweeps.
"""

import ast
import compileall
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]
HERE = Path(__file__).parents[2]
SWEEPS = "flip or prefix or torn_write or power_loss or burst or zeros or bytes_make or race or t15 or t12 or death or error_at"
MODULES = {
    "core/frame.py": ("test_frame.py", "test_reading.py", "test_conformance.py", "test_tail.py"),
    "core/header.py": ("test_frame.py", "test_reading.py", "test_tail.py"),
    "core/tail.py": ("test_frame.py", "test_reading.py", "test_tail.py"),
    "core/reading.py": ("test_reading.py", "test_frame.py", "test_conformance.py", "test_file.py"),
    "adapters/file/recovery.py": ("test_file.py", "test_conformance.py", "test_index.py", "test_faults.py"),
    "adapters/file/lease.py": ("test_tenure.py", "test_conformance.py", "test_file.py", "test_index.py", "test_lease.py"),
    "adapters/file/floor.py": ("test_floor.py", "test_conformance.py"),
}
WORKERS = max(2, (os.cpu_count() or 2))
KILLED_LEAST = 0.95
COMPARE = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
COMPARE |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add}


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Where a mutant can be made: comparisons, arithmetic, and/or, not, and calls that are statements."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[op, *_]) if type(op) in COMPARE:
                yield node
            case ast.BinOp(op=op, left=left) if type(op) in ARITHMETIC and not isinstance(left, ast.Constant):
                yield node
            case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Expr(value=ast.Call()):
                yield node


def mutate(node: ast.AST) -> None:
    match node:
        case ast.Compare():
            node.ops[0] = COMPARE[type(node.ops[0])]()
        case ast.BinOp():
            node.op = ARITHMETIC[type(node.op)]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case ast.Expr():
            node.value = ast.Constant(None)


@contextmanager
def worker(place: Path) -> Iterator["Worker"]:
    """A copy of the source, and a process that runs tests over it."""
    source = place / "src"
    shutil.copytree(HERE / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(source, quiet=2)
    command = [sys.executable, "-m", "tests.prove.programs.mutants"]
    process = subprocess.Popen(command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Worker(source, process)
    finally:
        process.kill()
        process.communicate()


class Worker:
    def __init__(self, source: Path, process: "subprocess.Popen[str]") -> None:
        self.source, self.process = source, process

    def passes(self, tests: tuple[str, ...], only: str) -> bool:
        """Whether all these tests, of those with such a name, let the source pass."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        paths = [str(HERE / "tests" / "storage" / name) for name in tests]
        self.process.stdin.write(json.dumps({"source": str(self.source), "tests": ["-k", only, *paths], "seconds": 400}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()) in (0, 5)  # 5: none has such a name

    def survivor(self, module: str, at: int) -> str | None:
        """What mutant number `at` of a module is, if no test notices it."""
        path, text = self.source / "semel" / module, (HERE / "src" / "semel" / module).read_text()
        tree = ast.parse(text)
        node = list(places(tree))[at]
        before = ast.unparse(node)
        mutate(node)
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
        try:
            if not all(self.passes(MODULES[module], only) for only in (f"not ({SWEEPS})", SWEEPS)):
                return None
        finally:
            path.write_text(text)
        return f"line {getattr(node, 'lineno', 0)}: {before} -> {ast.unparse(node)}"


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SimpleQueue[Worker]"]:
    free: SimpleQueue[Worker] = SimpleQueue()
    with contextlib.ExitStack() as stack:
        for _ in range(WORKERS):
            free.put(stack.enter_context(worker(tmp_path_factory.mktemp("mutants"))))
        yield free


@pytest.mark.parametrize("module", MODULES)
def test_every_small_change_is_noticed(module: str, workers: "SimpleQueue[Worker]") -> None:
    number = len(list(places(ast.parse((HERE / "src" / "semel" / module).read_text()))))

    def try_one(at: int) -> str | None:
        mine = workers.get()
        try:
            return mine.survivor(module, at)
        finally:
            workers.put(mine)

    one = workers.get()
    sound = all(one.passes(MODULES[module], only) for only in (f"not ({SWEEPS})", SWEEPS))
    workers.put(one)
    assert sound, "without a change the tests pass"
    with ThreadPoolExecutor(WORKERS) as pool:
        survivors = [found for found in pool.map(try_one, range(number)) if found is not None]
    print(f"{module}: {number - len(survivors)} of {number} mutants noticed", *survivors, sep="\n  survived: ")
    assert number - len(survivors) >= KILLED_LEAST * number
