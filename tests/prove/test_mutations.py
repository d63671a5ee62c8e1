"""Mutants of the modules that durable data depends on: one small change each, which some test must notice.

A seeded sample; each mutant is a copy of the source in a directory of its own, and its tests run in a process of their own.
"""

import ast
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1700)]
HERE = Path(__file__).parents[2]
STORAGE = (
    "test_tail.py",
    "test_frame.py",
    "test_reading.py",
    "test_conformance.py",
    "test_file.py",
    "test_floor.py",
    "test_tenure.py",
)
MODULES = {
    "core/frame.py": STORAGE,
    "core/header.py": STORAGE[:4],
    "core/tail.py": STORAGE[:3],
    "core/reading.py": STORAGE[1:5],
    "adapters/file/recovery.py": (*STORAGE[3:5], "test_damage.py", "test_faults.py"),
    "adapters/file/lease.py": ("test_tenure.py", "test_lease.py", "test_conformance.py"),
    "adapters/file/floor.py": ("test_floor.py", "test_conformance.py"),
}
MUTANTS_EACH = 8
KILLED_LEAST = 0.9
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


def survives(source: Path, tests: tuple[str, ...]) -> bool:
    paths = [str(HERE / "tests" / "storage" / name) for name in tests]
    options = ["-x", "-q", "-o", "timeout=60", f"--rootdir={HERE}", "-c", str(HERE / "pyproject.toml")]
    command = [sys.executable, "-m", "pytest", *options, *paths]
    environment = {**os.environ, "PYTHONPATH": f"{source}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=HERE, env=environment, capture_output=True, check=False, timeout=300).returncode == 0


@pytest.mark.parametrize("module", MODULES)
def test_a_small_change_is_noticed(module: str, tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(HERE / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    path, text = source / "semel" / module, (HERE / "src" / "semel" / module).read_text()
    number = len(list(places(ast.parse(text))))
    chosen = random.Random(module).sample(range(number), min(MUTANTS_EACH, number))
    survivors: list[str] = []
    for at in chosen:
        tree = ast.parse(text)
        node = list(places(tree))[at]
        before = ast.unparse(node)
        mutate(node)
        path.write_text(ast.unparse(ast.fix_missing_locations(tree)))
        if survives(source, MODULES[module]):
            survivors.append(f"line {getattr(node, 'lineno', 0)}: {before} -> {ast.unparse(node)}")
    killed = len(chosen) - len(survivors)
    print(f"{module}: {killed} of {len(chosen)} mutants noticed, of {number} places", *survivors, sep="\n  survived: ")
    assert killed + 1 >= KILLED_LEAST * len(chosen)
