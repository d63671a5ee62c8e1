"""The arguments of a call: strict parse, and the tool's own schema. (Being replaced by the full rule.)"""

import json


def parse_arguments(text: str) -> dict[str, object] | str:
    """Arguments, or what is wrong with them."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return str(error)
    return value if isinstance(value, dict) else "not an object"


def check_arguments(schema: str, arguments: dict[str, object]) -> str | None:
    """What is wrong with arguments; None if nothing is."""
    return None if schema or arguments else None
