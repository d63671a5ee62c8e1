"""The rules of the house as functions of a text. The tests run each on the tree and on a planted fault."""

import ast
import fnmatch
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FILE_LINES_MAX, FUNCTION_LINES_MAX = 400, 70

CORE_MAY_IMPORT = frozenset(
    {
        "abc",
        "array",
        "bisect",
        "collections",
        "dataclasses",
        "decimal",
        "enum",
        "errno",
        "functools",
        "hashlib",
        "itertools",
        "json",
        "math",
        "operator",
        "re",
        "string",
        "struct",
        "types",
        "typing",
        "unicodedata",
        "zlib",
        "msgspec",
        "semel.core",
        "semel.errors",
    }
)
CORE_MAY_IMPORT_LATE = frozenset({"jsonschema_rs"})  # pure, but it costs start-up time: only within a function
CORE_NEVER_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})

# The words are cut in two, so that this file keeps its own rules.
HOSTS = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(org|com)|yarnpkg\.com|anaconda\.org|crates\.io|debian\.org"
    rf"|\"{'resol'}ved\": *\"http|{'index'}-url *="
)
MACHINE_PATHS = re.compile(r"(?<![\w.*])/(root|home|Users|work|farm|opt/wheels)/\w")
LEFTOVERS = re.compile(rf"\b({'TO'}DO|{'FIX'}ME|{'XX'}X|{'HA'}CK)\b|\b{'break'}point\(\)|\bset_{'trace'}\(|^(<<<<<<<|>>>>>>>) ")
STUBS = re.compile(rf"\b{'NotImplemented'}Error\b|pragma: {'no'} cover|pytest\.mark\.{'x'}fail|pytest\.{'x'}fail")
SILENCED = re.compile(r"# *(type: *ignore|noqa)(?P<codes>(\[[\w, -]+\]|: *[A-Z]+\d+(, *[A-Z]+\d+)*)?)(?P<rest>.*)")


class Source(NamedTuple):
    """A file of the tree: its path from the root, with `/`, and its text."""

    path: str
    text: str


class Finding(NamedTuple):
    """A broken rule: where, and what to do."""

    path: str
    line: int
    what: str


Rule = Callable[[Source], Iterable[Finding]]


def tree() -> Iterator[Source]:
    """Every text file of the checkout, whether git knows it yet or not, except what `.gitignore` names."""
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line] + [".git"]
    kept = [name for name in os.listdir(ROOT) if not _matches(name, ignored)]
    for name in sorted(kept):
        yield from _texts(ROOT / name, ignored)


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _texts(path: Path, ignored: list[str]) -> Iterator[Source]:
    if path.is_dir():
        for child in sorted(path.iterdir()):
            if not _matches(child.name, ignored):
                yield from _texts(child, ignored)
        return
    try:
        yield Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return  # bytes of a fixture, not a text


def _lines(source: Source, pattern: re.Pattern[str], what: str) -> Iterator[Finding]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if match := pattern.search(line):
            yield Finding(source.path, number, f"{what}: {match[0]!r}")


def registry_hosts(source: Source) -> Iterator[Finding]:
    """Nothing names a package registry: where packages come from is the reader's own setting."""
    return _lines(source, HOSTS, "names a package registry; name the package only")


def machine_paths(source: Source) -> Iterator[Finding]:
    """Nothing depends on where somebody's checkout or home lies."""
    return _lines(source, MACHINE_PATHS, "is a path of one machine; use tmp_path or a relative path")


def leftovers(source: Source) -> Iterator[Finding]:
    """No note to self, debugger call or merge marker stays."""
    return _lines(source, LEFTOVERS, "is a leftover; do it, or file an issue")


def _is_python(source: Source) -> bool:
    return source.path.endswith(".py")


def stubs(source: Source) -> Iterator[Finding]:
    """No stub and no test that is expected to fail; a Protocol has `...` or a docstring for a body."""
    if _is_python(source):
        yield from _lines(source, STUBS, "is a stub; build it or leave it out")


def silenced_checks(source: Source) -> Iterator[Finding]:
    """A silenced check names the one rule it silences and says why behind it."""
    if not _is_python(source):
        return
    for number, line in enumerate(source.text.splitlines(), 1):
        match = SILENCED.search(line)
        if match and not (match["codes"] and re.search(r"\w{3}", match["rest"])):
            yield Finding(source.path, number, "silences a check without its name and a reason: `# noqa: X000  why`")


def sizes(source: Source) -> Iterator[Finding]:
    """A file stays under 400 lines and a function under 70, tests included."""
    if not _is_python(source):
        return
    count = len(source.text.splitlines())
    if count > FILE_LINES_MAX:
        yield Finding(source.path, count, f"has {count} lines, {FILE_LINES_MAX} are allowed; find the second concern in it")
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield Finding(source.path, node.lineno, f"{node.name} has {length} lines, {FUNCTION_LINES_MAX} are allowed")


def imported_names(node: ast.AST) -> list[str]:
    """The modules that one import statement may load; `from semel import core` counts as semel.core."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = node.module or "."
        return [f"semel.{alias.name}" for alias in node.names] if module == "semel" else [module]
    return []


def _within(name: str, allowed: Iterable[str]) -> bool:
    return any(name == package or name.startswith(package + ".") for package in allowed)


def _not_run_at_load(module: ast.Module) -> set[ast.AST]:
    """What stands in a function or below `if TYPE_CHECKING`, and so costs nothing when the module is imported."""
    late: set[ast.AST] = set()
    for node in ast.walk(module):
        typing_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if typing_only or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            late.update(inner for statement in node.body for inner in ast.walk(statement))
    return late


def core_is_pure(source: Source) -> Iterator[Finding]:
    """The core imports values and arithmetic only, and calls no built-in that touches the world."""
    if not (source.path.startswith("src/semel/core/") and _is_python(source)):
        return
    module = ast.parse(source.text)
    late = _not_run_at_load(module)
    for node in ast.walk(module):
        for name in imported_names(node):
            if not _within(name, CORE_MAY_IMPORT) and not (node in late and _within(name, CORE_MAY_IMPORT_LATE)):
                yield Finding(source.path, node.lineno, f"imports {name}; the core takes it as an argument instead")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CORE_NEVER_CALLS:
            yield Finding(source.path, node.lineno, f"calls {node.func.id}; the core does no IO and runs no text")


def log_writes(source: Source) -> list[Finding]:
    """Every place that hands records to a log: an awaited `append`, any `note`, an `append` to something named log or writer."""
    module = ast.parse(source.text)
    awaited = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Await)}
    found = []
    for node in ast.walk(module):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        receiver = ast.unparse(node.func.value).rpartition(".")[2].lstrip("_")
        if receiver == "barrier":
            continue  # asks the barrier to write, which is what everybody should do
        to_log = id(node) in awaited or re.fullmatch(r"(\w+_)?(log|writer)", receiver)
        if node.func.attr == "note" or (node.func.attr == "append" and to_log):
            found.append(
                Finding(source.path, node.lineno, f"writes to the log by {ast.unparse(node.func)}; only engine/barrier.py does")
            )
    return found


def barrier_writes_alone(source: Source) -> Iterator[Finding]:
    """Above the ports only the barrier appends, so that nothing leaves before its intent is durable."""
    inside = source.path.startswith(("src/semel/engine/", "src/semel/faces/", "src/semel/wiring"))
    if inside and _is_python(source) and source.path != "src/semel/engine/barrier.py":
        yield from log_writes(source)


def state_is_frozen(source: Source) -> Iterator[Finding]:
    """Only a fold changes a struct in place, and only what it owns."""
    if _is_python(source) and not re.fullmatch(r"src/semel/core/(fold(_\w+)?|owned)\.py|tests/.*", source.path):
        yield from _lines(source, re.compile(r"force_setattr|semel\.core\.owned"), "only a fold changes a frozen struct")


RULES: tuple[Rule, ...] = (
    state_is_frozen,
    registry_hosts,
    machine_paths,
    leftovers,
    stubs,
    silenced_checks,
    sizes,
    core_is_pure,
    barrier_writes_alone,
)
