"""Mutants of the modules that durable data depends on: every small change that can be made to them, which some test must notice.

Each mutant is tried against all tests of its module, the quick ones and those that noticed others first, until one fails.
"""

import ast
import compileall
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]
HERE = Path(__file__).parents[2]


class Module(NamedTuple):
    """What is tried: by which tests, how many mutants there are at least, and which of them change nothing, each with the reason.

    A mutant is named `function: before -> after`, and a second one of that name with `#2`. One that changes nothing is not tried
    and does not count.
    """

    tests: tuple[str, ...]
    mutants: int
    equivalent: Mapping[str, str] = MappingProxyType({})


MODULES = {
    "core/frame.py": Module(
        ("frame", "reading", "conformance", "tail"),
        85,
        {"good_frames: (end := find(b'\\n', position)) >= 0 -> (end := find(b'\\n', position)) > 0": "no frame is an empty line"},
    ),
    "core/header.py": Module(("frame", "reading", "tail"), 18),
    "core/tail.py": Module(
        ("frame", "reading", "tail"),
        121,
        {
            "_field_fault: NUMBER_LIMIT - 1 -> NUMBER_LIMIT + 1": "above it is no number, and none that ends in 0 is near",
            "_requires_fits: last + '{' < names[-1] -> last + '{' <= names[-1]": "what has a brace in it is no name",
            "_later_lines: position < limit -> position <= limit": "one more line, which has no bytes and so no fault",
            "_later_lines: newline < 0 -> newline <= 0": "a hole is in front, so that no newline is at 0",
        },
    ),
    "core/reading.py": Module(
        ("reading", "frame", "conformance", "file"),
        41,
        {
            "feed: newline >= 0 -> newline > 0": "behind an empty line all is decided, and stuck is not asked for",
            "feed: newline >= 0 -> newline > 0 #2": "an empty line is then judged as one that is too long, and is as damaged",
            "feed: nul < 0 -> nul <= 0": "what is too long behind a hole is judged earlier, with as much of it as tells",
            "feed: len(rest) > _LINE_BYTES_MOST -> len(rest) >= _LINE_BYTES_MOST": "no line of a frame is nearly as long",
            "feed: _LINE_BYTES_MOST + 1 -> _LINE_BYTES_MOST - 1": "no line of a frame is nearly as long",
            "feed: self._waiting_bytes > 0 -> self._waiting_bytes >= 0": "a line that has just doubled waits for one more piece",
        },
    ),
    "core/lookup.py": Module(
        ("lookup", "bookmark", "conformance"),
        28,
        {
            "_frames_from: start - before -> start + before #3": "only copies more, and nothing behind ten spaces is looked at",
        },
    ),
    "adapters/file/bookmark.py": Module(("bookmark", "conformance", "file"), 7),
    "adapters/file/recovery.py": Module(("contact", "file", "conformance", "index", "faults", "bookmark"), 32),
    "adapters/file/aside.py": Module(("contact", "file", "damage", "upkeep", "kept_in_vain"), 9),
    "adapters/file/lease.py": Module(("contact", "tenure", "conformance", "file", "index", "lease", "lock_life"), 38),
    "adapters/file/floor.py": Module(("floor", "floor_lock", "conformance", "floor_matrix"), 22),
}
NOTICED_LEAST = 0.95
RUN_SECONDS = 400
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


def function_of(tree: ast.Module, node: ast.AST) -> str:
    """The name of the function in which something stands; "" outside of all."""
    line = getattr(node, "lineno", 0)
    around = [
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.lineno <= line <= (one.end_lineno or 0)
    ]
    return max(around, key=lambda one: one.lineno).name if around else ""


def mutants_of(text: str) -> Iterator[tuple[str, str]]:
    """Every mutant of a source: its name and its text."""
    names: Counter[str] = Counter()
    for at in range(len(list(places(ast.parse(text))))):
        tree = ast.parse(text)
        node = list(places(tree))[at]
        where, before = function_of(tree, node), ast.unparse(node)
        mutate(node)
        name = f"{where}: {before} -> {ast.unparse(node)}"
        names[name] += 1
        again = f" #{names[name]}" if names[name] > 1 else ""
        yield name + again, ast.unparse(ast.fix_missing_locations(tree))


class Trial:
    """The tests of one module over one source after the other, in a copy of the tree and a process that stays."""

    def __init__(self, source: Path, process: "subprocess.Popen[str]", tests: tuple[str, ...]) -> None:
        self.source, self._process = source, process
        self._paths = [str(HERE / "tests" / "storage" / f"test_{name}.py") for name in tests]
        self._seconds: dict[str, float] = {}
        self._noticed: Counter[str] = Counter()

    def noticed(self) -> str | None:
        """Which test does not let the source pass; None if all do. "" stands for a run that did not come to its end."""
        said = self._run({test: seconds / (1 + self._noticed[test]) for test, seconds in self._seconds.items()})
        if said["code"] == 0:
            self._seconds = said["took"]
            return None
        self._noticed[said["failed"]] += 1
        return str(said["failed"])

    def _run(self, ranks: dict[str, float]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"source": str(self.source), "tests": self._paths, "ranks": ranks, "seconds": RUN_SECONDS}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        said: dict[str, Any] = json.loads(self._process.stdout.readline())
        return said


@contextmanager
def trial(place: Path, tests: tuple[str, ...]) -> Iterator[Trial]:
    """A copy of the source, and a process that runs these tests over it, which pass without a change."""
    source = place / "src"
    shutil.copytree(HERE / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(source, quiet=2)
    command = [sys.executable, "-m", "tests.prove.programs.mutants"]
    process = subprocess.Popen(command, cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        made = Trial(source, process, tests)
        assert made.noticed() is None, "without a change the tests pass"
        yield made
    finally:
        process.kill()
        process.communicate()


def survivors(on: Trial, module: str, equivalent: Mapping[str, str]) -> tuple[int, list[str]]:
    """How many mutants of a module were tried, and the names of those that no test noticed."""
    path = on.source / "semel" / module
    text, tried, left, known = path.read_text(), 0, [], set[str]()
    for name, changed in mutants_of(text):
        if name in equivalent:
            known.add(name)
            continue
        path.write_text(changed)
        tried += 1
        if on.noticed() is None:
            left.append(name)
    path.write_text(text)
    assert known == set(equivalent), "what changes nothing is still a mutant that can be made"
    return tried, left


@pytest.mark.parametrize("module", MODULES)
def test_every_small_change_is_noticed(module: str, tmp_path: Path) -> None:
    tests, mutants, equivalent = MODULES[module]
    with trial(tmp_path, tests) as on:
        tried, left = survivors(on, module, equivalent)
    print(f"{module}: {tried - len(left)} of {tried} mutants noticed, {len(equivalent)} more change nothing")
    print(*(f"  survived: {name}" for name in left), *(f"  {name}: {why}" for name, why in equivalent.items()), sep="\n")
    assert tried + len(equivalent) >= mutants
    assert tried - len(left) >= NOTICED_LEAST * tried


def test_a_change_that_no_test_looks_at_is_told(tmp_path: Path) -> None:
    with trial(tmp_path, ("names",)) as on:
        tried, left = survivors(on, "adapters/file/aside.py", {})
    assert len(left) == tried == 9
