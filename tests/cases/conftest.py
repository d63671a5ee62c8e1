"""What the cases share with the tests of the models: clocks, connectors and runs in virtual time."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
