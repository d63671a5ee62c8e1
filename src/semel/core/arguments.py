"""The arguments of a call: a strict reading of the model's text, and the check against the tool's own schema (T1, A23, B14).

Both answer with a refusal that tells the model what to change; neither repairs anything. An empty text is the empty
object, since that is how several servers stream a call without arguments (B13).
"""

import json
import math
import re
from collections import Counter
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from semel.core.outcomes import Refusal, RefusalReason, refuse
from semel.core.values import JSON, clean_json, clean_text, printable

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

ARGUMENT_CHARS_MAX = 1 << 20
DEPTH_MAX = 64
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
PROBLEMS_SHOWN_MAX = 5
PROBLEM_CHARS_MAX = 300
SCHEMAS_CACHED_MAX = 512

# A string, or one bracket. Strings are skipped, so that brackets inside them do not count; one without an end takes all the
# rest, and nothing is given back, so that the time is linear whatever the text.
_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_SPACE = " \t\r\n"


def parse_arguments(text: str) -> dict[str, JSON] | Refusal:
    """The arguments that `text` holds: one JSON object without duplicate keys, NaN, infinity or integers beyond 64 bits.

    Texts in it are clean (B19): a lone surrogate or NUL, which JSON can spell, is U+FFFD.
    """
    if len(text) > ARGUMENT_CHARS_MAX:
        return refuse(RefusalReason.OVERSIZED, f"They have {len(text)} characters, the most is {ARGUMENT_CHARS_MAX}.")
    said = text.lstrip(_SPACE)
    if not said:
        return {}
    if not _depth_fits(text):
        return _invalid(f"They are nested deeper than {DEPTH_MAX} levels.")
    try:
        arguments = _value(text, len(text) - len(said))
    except json.JSONDecodeError as error:
        near = printable(text[error.pos : error.pos + 20], limit=20)
        where = f"character {error.pos}, near {near!r}" if near else "their end"
        return _invalid(f"{error.msg.removesuffix(' at')} at {where}.")
    except _NotStrict as error:
        return _invalid(str(error))
    if not isinstance(arguments, dict):
        return _invalid("They are a value of another kind.")
    if text.isascii() and "\\u" not in text:  # nothing in it can spell what would have to be cleaned
        return arguments
    cleaned: dict[str, JSON] = clean_json(arguments)
    return cleaned


def check_arguments(schema_text: str, arguments: dict[str, JSON]) -> Refusal | None:
    """None if the arguments fit the tool's original JSON Schema, else what does not fit, and where."""
    validator = _validator(schema_text)
    if validator.is_valid(arguments):
        return None
    problems = list(islice(validator.iter_errors(arguments), PROBLEMS_SHOWN_MAX + 1))
    shown = "; ".join(_problem(problem) for problem in problems[:PROBLEMS_SHOWN_MAX])
    return refuse(RefusalReason.SCHEMA_INVALID, shown + ("; and more." if len(problems) > PROBLEMS_SHOWN_MAX else "."))


def schema_problem(schema_text: str) -> str | None:
    """Why a tool's schema cannot be used, None if it can; asked when the tool is registered."""
    try:
        schema = json.loads(schema_text)
        if not isinstance(schema, dict) or schema.get("type") != "object":
            return 'its schema is not of "type": "object"'
        _validator(schema_text)
    except (ValueError, RecursionError) as error:  # jsonschema_rs.ValidationError is a ValueError too
        return f"its schema is not valid: {printable(str(error).partition(chr(10))[0], limit=PROBLEM_CHARS_MAX)}"
    return None


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def _validator(schema_text: str) -> "Validator":
    """The compiled schema. Nothing is ever fetched: a reference to another document makes the schema invalid."""
    from jsonschema_rs import validator_for

    return validator_for(json.loads(schema_text), offline=True)


def _problem(error: "ValidationError") -> str:
    path = "/".join(str(part) for part in error.instance_path)
    message = printable(error.message, limit=PROBLEM_CHARS_MAX)
    return f"{printable(path, limit=PROBLEM_CHARS_MAX)}: {message}" if path else message


class _NotStrict(Exception):
    """JSON that a lenient reader takes and we do not."""


def _invalid(detail: str) -> Refusal:
    return refuse(RefusalReason.ARGUMENTS_INVALID, detail)


def _value(text: str, start: int) -> JSON:
    """The one value that the text holds from `start` on."""
    value, end = _DECODER.raw_decode(text, start)
    rest = text[end:].lstrip(_SPACE)
    if rest:
        raise json.JSONDecodeError("Extra data", text, len(text) - len(rest))
    return value


def _depth_fits(text: str) -> bool:
    """Checked before decoding, which recurses."""
    if text.count("{") + text.count("[") <= DEPTH_MAX:
        return True
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        if (mark := match[0]) in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        if depth > DEPTH_MAX:
            return False
    return True


def _object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    if len(found) != len(pairs) or (len(found) > 1 and len({clean_text(name) for name in found}) != len(pairs)):
        twice, _ = Counter(clean_text(name) for name, _ in pairs).most_common(1)[0]
        raise _NotStrict(f"The key {printable(twice, limit=60)!r} occurs twice.")
    return found


def _integer(digits: str) -> int:
    if len(digits) > 20 or not INTEGER_MIN <= (value := int(digits)) <= INTEGER_MAX:
        raise _NotStrict(f"The integer {digits[:20]}... does not fit into 64 bits; write it as a string.")
    return value


def _float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise _NotStrict(f"The number {digits[:20]} is too large.")
    return value


def _constant(name: str) -> float:
    raise _NotStrict(f"{name} is not JSON.")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant)
