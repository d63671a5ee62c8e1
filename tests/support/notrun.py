"""What a machine cannot run is said aloud: the one way for a test to skip itself."""

from collections.abc import Iterator, Sequence
from typing import NoReturn

import pytest


def not_run(reason: str) -> NoReturn:
    """Skip the calling test because this machine lacks something; `reason` says what, and stands in the closing summary."""
    pytest.skip(reason)


def summary_lines(skipped: Sequence[pytest.TestReport], proof_count: int) -> Iterator[str]:
    """One line for each reason with the tests it kept from running, however they were skipped, and one for the proofs."""
    tests: dict[str, list[str]] = {}
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        tests.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    for reason, names in tests.items():
        yield f"{reason}: {', '.join(names)}"
    if proof_count:
        yield f"long proofs: {proof_count}; `make prove` runs them"
