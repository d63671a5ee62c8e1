"""No module is dead, every public name is explained, and `import semel` loads nothing heavy."""

import importlib
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from types import ModuleType

from tests.support.notrun import not_run
from tests.tidy import modules, rules
from tests.tidy.rules import Source

HEAVY = frozenset(
    {"httpx2", "jsonschema_rs", "rich", "click", "mcp", "psycopg", "nats", "starlette", "uvicorn", "opentelemetry", "pydantic"}
)


def package() -> list[Source]:
    return [source for source in rules.tree() if source.path.startswith("src/semel/") and source.path.endswith(".py")]


def roots() -> set[str]:
    """Where reading starts: the root package, `python -m semel`, the declared commands, and what is shipped for users' tests."""
    project = tomllib.loads((rules.ROOT / "pyproject.toml").read_text())["project"]
    return {"semel", "semel.__main__", "semel.testing."} | {script.partition(":")[0] for script in project["scripts"].values()}


def test_every_module_is_named_by_another() -> None:
    sources = package()
    if not any(source.path == "src/semel/wiring.py" for source in sources):
        not_run("src/semel/wiring.py does not exist yet, and it is what names the adapters")
    assert modules.unnamed_modules(sources, roots()) == []


def test_a_planted_dead_module_is_found() -> None:
    sources = [
        Source("src/semel/__init__.py", 'NAMES = {"run": "semel.a:run"}'),
        Source("src/semel/a.py", "from semel.b import c\nfrom semel import d"),
        Source("src/semel/b/__init__.py", '"""Only a docstring."""'),
        Source("src/semel/b/c.py", "import semel.b.c"),
        Source("src/semel/d.py", "x = 1"),
        Source("src/semel/dead.py", "import semel.dead"),
        Source("src/semel/testing/world.py", "x = 1"),
    ]
    assert modules.unnamed_modules(sources, {"semel", "semel.testing."}) == ["semel.dead"]


def doors(sources: Iterable[Source], library: str) -> list[str]:
    """The modules of the core that import a library, in whatever form."""
    core = [source for source in sources if source.path.startswith("src/semel/core/")]
    return [
        source.path for source in core if any(name.partition(".")[0] == library for name in modules.named_modules(source.text))
    ]


def test_the_schema_library_has_one_door_in_the_core() -> None:
    assert len(doors(package(), "jsonschema_rs")) <= 1


def test_a_planted_second_door_is_found() -> None:
    one = Source("src/semel/core/one.py", "def f():\n    from jsonschema_rs import validator_for")
    two = Source("src/semel/core/two.py", "import jsonschema_rs as schemas")
    assert doors([one, two, Source("src/semel/core/three.py", "jsonschema_rs = None")], "jsonschema_rs") == [one.path, two.path]


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has after running `code`."""
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def heavy(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in names} & HEAVY


def test_import_semel_loads_nothing_heavy() -> None:
    assert heavy(loaded_by("import semel")) == set()


def test_a_planted_heavy_import_is_found() -> None:
    assert heavy(loaded_by("import semel, rich.text, click")) == {"rich", "click"}


def unexplained(names: Mapping[str, object], pages: str) -> list[str]:
    """Public names without a docstring of their own, or that no page mentions as code."""
    return [name for name, value in names.items() if not getattr(value, "__doc__", None) or f"`{name}" not in pages]


def public_names(module: ModuleType) -> dict[str, object]:
    return {name: getattr(module, name) for name in getattr(module, "__all__", ())}


def test_every_public_name_has_a_docstring_and_is_on_a_page() -> None:
    pages = "".join(source.text for source in rules.tree() if source.path.endswith(".md"))
    assert unexplained(public_names(importlib.import_module("semel")), pages) == []


def test_a_planted_unexplained_name_is_found() -> None:
    def explained() -> None:
        """It has one."""

    def silent() -> None: ...

    names = {"explained": explained, "silent": silent, "hidden": explained}
    assert unexplained(names, "`explained(x)` and `silent` do; hidden does not") == ["silent", "hidden"]


def test_all_is_sorted_and_complete() -> None:
    semel = importlib.import_module("semel")
    names = list(getattr(semel, "__all__", ()))
    assert names == sorted(names)
    assert all(hasattr(semel, name) for name in names)
