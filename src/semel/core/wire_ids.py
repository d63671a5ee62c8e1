"""Call ids as a provider takes them: a pure function of the conversation and the provider's rule (B10, wire 0.5).

The log keeps the ids that its providers gave. On the way to another provider an id that breaks its rule is replaced by one that
derives from it, the same for the call and its result; an id that keeps the rule stays. The mapping of a conversation's beginning
does not change when it goes on, so that what was sent before is sent again with the same bytes.
"""

import hashlib
import re
from collections.abc import Iterable

from semel.core.values import Frozen

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_STEM = "call_"


class IdRule(Frozen, frozen=True, kw_only=True):
    """What ids a provider takes: a pattern for the whole id, and how long a replacement is. `stem` fits the pattern too."""

    pattern: str
    length: int
    stem: str = _STEM

    def takes(self, name: str) -> bool:
        """Whether an id keeps the rule as it is."""
        return re.fullmatch(self.pattern, name) is not None


OPENAI_CHAT = IdRule(pattern=r"[ -~]{1,40}", length=29)
OPENAI_RESPONSES = IdRule(pattern=r"[ -~]{1,64}", length=29)
ANTHROPIC = IdRule(pattern=r"[a-zA-Z0-9_-]+", length=29)
BEDROCK = IdRule(pattern=r"[a-zA-Z0-9_-]{1,64}", length=29)
GEMINI = IdRule(pattern=r"[ -~]{1,64}", length=29)
MISTRAL = IdRule(pattern=r"[a-zA-Z0-9]{9}", length=9, stem="")


def wire_ids(ids: Iterable[str], rule: IdRule) -> dict[str, str]:
    """The id on the wire of each id, in the order in which the conversation first has them. No two of them are equal."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in ids:
        if name in found:
            continue
        tries = 0
        sent = name if rule.takes(name) else _derived(name, tries, rule)
        while sent in taken:
            tries += 1
            sent = _derived(name, tries, rule)
        found[name] = sent
        taken.add(sent)
    return found


def _derived(name: str, tries: int, rule: IdRule) -> str:
    number = int.from_bytes(hashlib.sha256(f"{tries}\x1f{name}".encode("utf-8", "surrogatepass")).digest())
    digits = []
    for _ in range(rule.length - len(rule.stem)):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return rule.stem + "".join(digits)
