"""Every timer of the models is made by one function, and every wait is on the injected clock (X10, X11, V27).

Core and ports make none at all; engine, tools and faces have waits of their own, on the clock that they are given.
"""

import ast
from collections.abc import Iterator

from tests.tidy.rules import Finding, Source, tree

PACKAGE = "src/semel/adapters/models/"
SCANNED = (PACKAGE, "src/semel/core/", "src/semel/ports/")
MAKER = PACKAGE + "deadline.py"
# The scripted model plays the part of a server: its waits are what a client has to bear, not limits.
SERVER = PACKAGE + "scripted.py"
MAKERS = frozenset(
    {"call_later", "call_at", "timeout", "timeout_at", "wait_for", "fail_after", "move_on_after", "Timer", "sleep", "Timeout"}
    | {"settimeout", "setdefaulttimeout", "setitimer", "alarm"}
)
LIBRARIES = frozenset({"asyncio", "anyio", "time", "threading", "sched"})


def stray_timers(source: Source) -> Iterator[Finding]:
    """Calls that make a timer or wait, outside of where they belong; and a timeout that is handed on, in whatever way."""
    if not source.path.startswith(SCANNED) or not source.path.endswith(".py"):
        return
    for node in ast.walk(ast.parse(source.text)):
        if _hands_on(node):
            yield Finding(source.path, getattr(node, "lineno", 0), "hands on a timeout, which another clock would measure")
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        if name in MAKERS and not _belongs(source.path, name, owner):
            yield Finding(
                source.path, node.lineno, f"{ast.unparse(node.func)} makes a timer; use deadline.timer or deadline.pause"
            )


def _hands_on(node: ast.AST) -> bool:
    """Whether a timeout that is not None is an argument, a key, an attribute that is set, or the one argument of a `wait`."""
    match node:
        case ast.keyword(arg=str(name), value=value):
            named = [(name, value)]
        case ast.Dict(keys=keys, values=values):
            named = [(key.value, value) for key, value in zip(keys, values, strict=True) if isinstance(key, ast.Constant)]
        case ast.Assign(targets=targets, value=value):
            named = [(target.attr, value) for target in targets if isinstance(target, ast.Attribute)]
        case ast.Call(func=ast.Attribute(value=owner, attr="wait"), args=[value, *_]) if ast.unparse(owner) not in LIBRARIES:
            named = [("timeout", value)]
        case _:
            return False
    return any(str(name).endswith("timeout") and ast.unparse(value) != "None" for name, value in named)


def _belongs(path: str, name: str, owner: str) -> bool:
    on_the_clock = name == "sleep" and owner.rpartition(".")[2].lstrip("_") == "clock"
    return on_the_clock and path in (MAKER, SERVER)


def imports_of_timers(source: Source) -> Iterator[Finding]:
    """A maker that is imported by name would be called without its owner."""
    if source.path.startswith(SCANNED) and source.path.endswith(".py"):
        for node in ast.walk(ast.parse(source.text)):
            if isinstance(node, ast.ImportFrom) and node.module in LIBRARIES:
                yield from (
                    Finding(source.path, node.lineno, f"imports {alias.name}") for alias in node.names if alias.name in MAKERS
                )


def found_in(sources: list[Source]) -> list[Finding]:
    return [finding for source in sources for rule in (stray_timers, imports_of_timers) for finding in rule(source)]


def test_the_tree_has_no_stray_timer() -> None:
    sources = [source for source in tree() if source.path.startswith(SCANNED)]
    assert len(sources) > 100
    assert {place for place in SCANNED if any(source.path.startswith(place) for source in sources)} == set(SCANNED)
    assert found_in(sources) == []


def test_a_planted_stray_timer_is_found() -> None:
    planted = [
        "async def f(clock): await clock.sleep(1)",
        "import asyncio\nasync def f(): await asyncio.sleep(1)",
        "import asyncio\nasync def f():\n    async with asyncio.timeout(1): pass",
        "import asyncio\nasync def f(): await asyncio.wait_for(g(), 1)",
        "def f(loop): loop.call_later(1, print)",
        "import threading\ndef f(): threading.Timer(1, print).start()",
        "def f(client): client.post('x', timeout=3)",
        "from asyncio import sleep",
        "def f(client): client.post('x', read_timeout=3)",
        "def f(client): client.post('x', **{'timeout': 3})",
        "def f(client): client.build_request('POST', 'x', extensions={'timeout': LIMITS})",
        "def f(client): client.timeout = 3",
        "def f(event): event.wait(3)",
        "import httpx2\nLIMITS = httpx2.Timeout(3)",
        "def f(sock): sock.settimeout(3)",
    ]
    for text in planted:
        assert len(found_in([Source(PACKAGE + "new.py", text)])) == 1, text
    harmless = ("client.post('x', timeout=None)", "asyncio.wait(tasks)", "event.wait()", "{'timeout': None}")
    for text in harmless:
        assert found_in([Source(PACKAGE + "new.py", f"def f(client, event, tasks): {text}")]) == []
    for place in SCANNED:
        assert len(found_in([Source(place + "new.py", planted[1])])) == 1
    assert found_in([Source(MAKER, "async def f(self): await self._clock.sleep(1)")]) == []
    assert len(found_in([Source(MAKER, "async def f(asyncio): await asyncio.sleep(1)")])) == 1
