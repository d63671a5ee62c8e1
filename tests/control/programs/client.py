"""The command line with a fault in it: client FAULT WORD...

`new_key` makes another key for each attempt, where the real one makes it once for all of them.
"""

import sys

from semel.adapters.system import SystemIds
from semel.faces.cli import owner
from semel.faces.cli.main import main

if __name__ == "__main__":
    fault, *words = sys.argv[1:]
    assert fault == "new_key"
    ask, ids = owner.ask, SystemIds()

    def with_new_key(*given: object) -> object:
        *before, args = given
        return ask(*before, {**args, "key": ids.fresh()})

    owner.ask = with_new_key
    main(words)
