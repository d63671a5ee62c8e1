"""The import contracts of pyproject.toml hold, and each of them breaks on a planted import."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.tidy.rules import ROOT

# contract -> module that gets the import, the import
PLANTED = {
    "Imports point inward": ("engine/planted_a.py", "from semel.adapters.file import planted_c"),
    "Core and ports do no IO, read no clock, draw nothing": ("core/planted_b.py", "import time"),
    "The engine reaches the world through ports only": ("engine/planted_d.py", "import socket"),
    "Adapters do not know each other": ("adapters/memory/planted_e.py", "from semel.adapters.file import planted_c"),
    "Faces reach adapters through the wiring": ("faces/planted_f.py", "from semel.adapters.file import planted_c"),
}
RESULT = re.compile(r"^(?P<contract>\S.*) (?P<verdict>KEPT|BROKEN)\b", re.MULTILINE)


def lint(place: Path) -> tuple[dict[str, str], str]:
    """What import-linter says of the package in `place`: the verdict of each contract, and all it printed."""
    code = "import sys; from importlinter.cli import lint_imports_command as main; main()"
    options = ["--no-logo", "--no-cache"]
    environment = {"PYTHONPATH": str(place / "src"), "PATH": "", "LANG": "C.UTF-8", "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", code, *options], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    return {match["contract"]: match["verdict"] for match in RESULT.finditer(done.stdout)}, done.stdout + done.stderr


def copy_of_house(place: Path) -> Path:
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def test_every_import_contract_holds(tmp_path: Path) -> None:
    verdicts, said = lint(copy_of_house(tmp_path))
    assert verdicts == dict.fromkeys(PLANTED, "KEPT"), said


def test_every_import_contract_breaks_on_a_planted_import(tmp_path: Path) -> None:
    package = copy_of_house(tmp_path) / "src/semel"
    (package / "adapters/file/planted_c.py").write_text('"""The target of planted imports."""\n')
    for path, statement in PLANTED.values():
        (package / path).write_text(f"{statement}\n")
    verdicts, said = lint(tmp_path)
    assert verdicts == dict.fromkeys(PLANTED, "BROKEN"), said


def test_the_real_clock_is_open_to_every_adapter_and_a_new_layer_must_be_placed(tmp_path: Path) -> None:
    package = copy_of_house(tmp_path) / "src/semel"
    (package / "adapters/system.py").write_text("import time\n")
    (package / "adapters/file/planted.py").write_text("from semel.adapters import system\n")
    assert set(lint(tmp_path)[0].values()) == {"KEPT"}
    (package / "elsewhere.py").write_text("x = 1\n")
    assert lint(tmp_path)[0]["Imports point inward"] == "BROKEN"
