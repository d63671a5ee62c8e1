"""Starts lives quickly: a process that has imported everything once forks for each of them. Each life is a process of its own.

Reads one JSON object a line, {"place", "url", "kill", "program"}; answers with the life's wait status, a line each.
"""

import json
import os
import sys
from pathlib import Path

from semel.core.values import Effect
from semel.testing.faults import KILL_VARIABLE
from tests.sweep import matrix, pauses, reference, talk

PROGRAMS = {
    "reference": reference.life,
    "talk": talk.life,
    "pauses": pauses.life,
    **{f"matrix {effect}": matrix.life(effect) for effect in Effect},
}


def main() -> None:
    import httpx2  # noqa: F401  what a life needs is imported before the fork
    import jsonschema_rs  # noqa: F401  needed before the fork

    import semel.adapters.models.catalog
    import semel.adapters.models.openai_chat.model
    import semel.adapters.models.transport  # noqa: F401  needed before the fork

    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            os.environ.pop(KILL_VARIABLE, None)
            if order["kill"]:
                os.environ[KILL_VARIABLE] = order["kill"]
            code = 70
            try:
                code = PROGRAMS[order["program"]](Path(order["place"]), order["url"])
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
