"""The page of the protocol is enough to speak it, and its tables are those of the code."""

import json
import re
import subprocess
import sys
from pathlib import Path

from semel.faces.answering import VERBS, TailArgs
from semel.ports.control import Request
from tests.control.support import owned
from tests.docs.test_pages import DOCS, titled

PAGE = (DOCS / "socket.md").read_text()


def rows(heading: str) -> dict[str, list[str]]:
    """First cells of a table with the words in marks of its second."""
    table = PAGE.partition(heading)[2].partition("\n\n")[0]
    found = re.findall(r"^\| `(\w+)` \|(.*?)\|", table, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`(?![^(]*\))", cell) for name, cell in found}


def test_the_program_of_the_page_speaks_to_a_process_that_runs_a_session(tmp_path: Path) -> None:
    (tmp_path / "ask.py").write_text(titled(PAGE, "ask.py"))
    with owned(tmp_path) as owner:

        def ask(verb: str, **args: object) -> list[dict[str, object]]:
            words = [sys.executable, "ask.py", ".semel", "s", verb, json.dumps(args)]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
            return [json.loads(line) for line in done.stdout.splitlines()]

        (state,) = ask("state")
        assert state["ok"]["status"]["state"] == "running"
        (steered,) = ask("send", text="Hurry", key="k", delivery="steer")
        assert steered["ok"]["run_id"] == state["ok"]["status"]["run_id"]
        assert owner.shop.types().count("steered") == 1
        (refused,) = ask("send", text="Hurry up", key="k", delivery="steer")
        assert (refused["error"]["code"], refused["error"]["exit"]) == ("key_reuse", 2)


def test_the_tables_of_the_page_are_those_of_the_code() -> None:
    assert list(rows("| field | meaning |")) == list(Request.__struct_fields__)
    forms = {name: list(form.__struct_fields__) for name, (form, _) in VERBS.items()}
    forms |= {"state": [], "tail": list(TailArgs.__struct_fields__)}
    assert {name: sorted(words) for name, words in rows("| verb | arguments |").items()} == {
        name: sorted(words) for name, words in forms.items()
    }
