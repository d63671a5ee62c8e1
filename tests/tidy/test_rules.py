"""The rules of the house hold for the whole tree, and each of them catches a planted fault."""

import pytest

from tests.tidy import rules
from tests.tidy.rules import Rule, Source

TREE = list(rules.tree())
LONG_FUNCTION = "def long():\n" + "    x = 1\n" * 70

# rule, path, text that breaks it, text beside it that does not
PLANTED: list[tuple[Rule, str, str, str]] = [
    (rules.registry_hosts, "docs/a.md", "pip install -i https://py" + "pi.org/simple x", "pip install x"),
    (rules.registry_hosts, "package-lock.json", '"resolved"' + ': "https://somewhere/x.tgz"', '"resolved": true'),
    (rules.machine_paths, "docs/a.md", "cd /ro" + "ot/semel", "cd ./root/semel"),
    (rules.machine_paths, "src/semel/a.py", 'p = "/ho' + 'me/me/log"', 'p = "https://docs.example/home/me"'),
    (rules.leftovers, "Makefile", "# TO" + "DO later", "# to do is to be"),
    (rules.leftovers, "src/semel/a.py", "break" + "point()", "breakpoints = ()"),
    (rules.leftovers, "docs/a.md", "<<<<" + "<<< ours", "<<< ours"),
    (rules.stubs, "src/semel/a.py", "raise NotImplemented" + "Error", "raise TypeError"),
    (rules.stubs, "tests/test_a.py", "@pytest.mark.x" + "fail", "@pytest.mark.prove"),
    (
        rules.silenced_checks,
        "src/semel/a.py",
        "x = y  # type: " + "ignore",
        "x = y  # type: " + "ignore[misc]  # the stub is wrong",
    ),
    (rules.silenced_checks, "src/semel/a.py", "x = y  # no" + "qa: S101", "x = y  # no" + "qa: S101  # checked above"),
    (rules.sizes, "src/semel/a.py", "x = 1\n" * 401, "x = 1\n" * 400),
    (rules.sizes, "tests/test_a.py", LONG_FUNCTION, LONG_FUNCTION.removesuffix("    x = 1\n")),
    (rules.state_is_frozen, "src/semel/core/decide.py", "from semel.core.owned import put", "from semel.core.state import Run"),
    (rules.state_is_frozen, "src/semel/engine/a.py", "structs.force_setattr(run, 'usage', 1)", "structs.replace(run, usage=1)"),
    (rules.core_is_pure, "src/semel/core/a.py", "import os", "import zlib"),
    (rules.core_is_pure, "src/semel/core/a.py", "from semel.ports import log", "from semel.core import frame"),
    (rules.core_is_pure, "src/semel/core/a.py", "from semel import engine", "from semel import errors"),
    (rules.core_is_pure, "src/semel/core/a.py", "import semel", "import semel.errors"),
    (rules.core_is_pure, "src/semel/core/a.py", "def f():\n    import time", "def f():\n    import math"),
    (rules.core_is_pure, "src/semel/core/a.py", "import jsonschema_rs", "def f():\n    import jsonschema_rs"),
    (rules.core_is_pure, "src/semel/core/a.py", "if X:\n    import jsonschema_rs", "if TYPE_CHECKING:\n    import jsonschema_rs"),
    (rules.core_is_pure, "src/semel/core/a.py", "open('x')", "reopen('x')"),
    (rules.barrier_writes_alone, "src/semel/engine/a.py", "async def f(x): await x.append([r])", "def f(x): x.append(r)"),
    (rules.barrier_writes_alone, "src/semel/engine/a.py", "self._writer.append([r])", "self._written.append(r)"),
    (rules.barrier_writes_alone, "src/semel/faces/api.py", "log.note([r])", "catalog.append(r)"),
    (rules.barrier_writes_alone, "src/semel/engine/a.py", "self.writer.note([r])", "self.barrier.note([r])"),
    (rules.barrier_writes_alone, "src/semel/wiring.py", "open_log().log.append(r)", "open_log().names.append(r)"),
]


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps_the_rule(rule: Rule) -> None:
    found = [finding for source in TREE for finding in rule(source)]
    assert not found, "\n" + "\n".join(f"{path}:{line}: {what}" for path, line, what in found)


@pytest.mark.parametrize(("rule", "path", "bad", "good"), PLANTED)
def test_the_rule_finds_a_planted_fault_and_nothing_else(rule: Rule, path: str, bad: str, good: str) -> None:
    assert len(list(rule(Source(path, f"{good}\n{bad}\n" if rule is not rules.sizes else bad)))) == 1
    assert not list(rule(Source(path, good)))


def test_every_rule_has_a_planted_fault() -> None:
    assert {rule for rule, *_ in PLANTED} == set(rules.RULES)


def test_the_tree_that_is_read_is_the_whole_checkout() -> None:
    paths = {source.path for source in TREE}
    assert {"Makefile", "README.md", ".ci/run", "pyproject.toml", "src/semel/errors.py", "tests/tidy/rules.py"} <= paths
    assert not any(path.startswith((".git/", ".venv")) for path in paths)


def test_a_barrier_is_where_the_log_is_written() -> None:
    """The rule above would hold for an engine that hides its writes; where there is a barrier, it is seen to write."""
    barriers = [source for source in TREE if source.path == "src/semel/engine/barrier.py"]
    assert all(rules.log_writes(source) for source in barriers)
