"""Set-up: pinned by hash, one environment for every target, and nothing slow the second time."""

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.notrun import not_run
from tests.tidy.rules import ROOT

PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^ ;\\]+)(?P<rest>(?:.*\\\n)*.*)", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    return {match["name"]: match["version"] for match in PIN.finditer(text)}


def without_hash(text: str) -> list[str]:
    return [match["name"] for match in PIN.finditer(text) if "--hash=sha256:" not in match["rest"]]


def not_equal(inner: Mapping[str, str], outer: Mapping[str, str]) -> list[str]:
    """What the smaller environment pins and the larger one lacks or pins otherwise."""
    return [name for name, version in inner.items() if outer.get(name) != version]


def requirements(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


@pytest.mark.parametrize(("name", "at_least"), [("uv", 1), ("run", 10), ("dev", 50), ("local", 1)])
def test_every_requirement_is_pinned_by_hash(name: str, at_least: int) -> None:
    assert len(pins(requirements(name))) >= at_least
    assert without_hash(requirements(name)) == []


def test_dev_holds_all_of_run_with_equal_pins() -> None:
    assert not_equal(pins(requirements("run")), pins(requirements("dev"))) == []


def test_planted_faults_in_requirements_are_found() -> None:
    text = "a==1 \\\n    --hash=sha256:00\nb==2\n    # via a\nc==3 ; python_version < '3.12' \\\n    --hash=sha256:11\n"
    assert without_hash(text) == ["b"]
    assert not_equal(pins(text), {"a": "1", "b": "3"}) == ["b", "c"]


def test_the_core_install_is_five_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.match(r"[\w-]+", need)[0] for need in project["dependencies"]}
    assert names == {"msgspec", "httpx2", "jsonschema-rs", "click", "rich"}
    assert names <= pins(requirements("run")).keys()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that `make` looks at, without an environment."""
    if shutil.which("make") is None:
        not_run("make is not installed")
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *arguments]
    # The tests may themselves run under `make`, whose flags and variables would reach this one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


def stamp(place: Path, *names: str) -> None:
    (place / ".venv").mkdir(exist_ok=True)
    for name in names:
        (place / ".venv" / name).touch()


def would_run(place: Path, *targets: str) -> list[str]:
    return [line for line in make(place, "-n", *targets).stdout.splitlines() if not line.startswith("touch ")]


def test_a_second_call_installs_nothing(checkout: Path) -> None:
    stamp(checkout, ".uv", ".run", ".dev")
    assert would_run(checkout, "demo") == [".venv/bin/semel demo "]
    assert would_run(checkout, "test") == [".venv/bin/pytest "]


def test_the_demo_uses_the_tests_environment_where_there_is_one(checkout: Path) -> None:
    stamp(checkout, ".uv", ".dev")
    assert would_run(checkout, "demo") == [".venv/bin/semel demo "]
    (checkout / "requirements/dev.txt").write_text("changed")
    commands = "\n".join(would_run(checkout, "demo"))
    assert "requirements/dev.txt" in commands
    assert "requirements/run.txt" not in commands


def test_the_demo_alone_installs_what_semel_needs_and_no_more(checkout: Path) -> None:
    commands = "\n".join(would_run(checkout, "demo"))
    assert "--require-hashes --python .venv/bin/python requirements/run.txt" in commands
    assert "requirements/dev.txt" not in commands


def test_an_old_python_is_refused_in_one_line_and_leaves_nothing(checkout: Path) -> None:
    old = checkout / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = make(checkout, "test", f"PYTHON={old}")
    first, second = done.stderr.splitlines()
    assert first.startswith("semel needs Python 3.11 or newer")
    assert second.startswith("make: ***")
    assert done.returncode == 2
    assert not (checkout / ".venv").exists()


def test_bare_make_lists_every_target(checkout: Path) -> None:
    listed = {line.split()[1] for line in make(checkout).stdout.splitlines()}
    assert listed == {"help", "demo", "test", "check", "prove", "docs", "clean"}
