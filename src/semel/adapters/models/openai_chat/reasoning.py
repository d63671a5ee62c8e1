"""What a model thought, kept to be sent back as it came: fragments joined, nothing else touched (wire 0.2, wire 2)."""

from semel.adapters.models.opaque import opaque
from semel.core.values import JSON, Block

_JOINED = frozenset({"text", "summary", "data"})  # a fragment's other members are assigned, never joined


class Reasoning:
    """Collects the reasoning members of one answer's deltas."""

    def __init__(self) -> None:
        """Nothing collected yet."""
        self._plain: dict[str, list[str]] = {}
        self._details: dict[tuple[JSON, JSON], dict[str, JSON]] = {}

    def add(self, delta: dict[str, JSON]) -> bool:
        """Take what a delta holds of it; True if it held any."""
        found = False
        for name in ("reasoning_content", "reasoning"):
            piece = delta.get(name)
            if isinstance(piece, str) and piece:
                self._plain.setdefault(name, []).append(piece)
                found = True
        details = delta.get("reasoning_details")
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict):
                self._merge(detail)
                found = True
        return found

    def blocks(self) -> list[Block]:
        """One block per name that was received. Beside `reasoning_details`, plain `reasoning` is for display and is dropped."""
        plain = {name: "".join(pieces) for name, pieces in self._plain.items() if name != "reasoning" or not self._details}
        values: dict[str, JSON] = {**plain, **({"reasoning_details": list(self._details.values())} if self._details else {})}
        return [opaque(name, value) for name, value in values.items()]

    def _merge(self, detail: dict[str, JSON]) -> None:
        index, kind = detail.get("index"), detail.get("type")
        key = (index if isinstance(index, int) else f"#{len(self._details)}", kind if isinstance(kind, str) else None)
        item = self._details.setdefault(key, {})
        for name, value in detail.items():
            old = item.get(name)
            if name in _JOINED and isinstance(old, str) and isinstance(value, str):
                item[name] = old + value
            elif value is not None or name not in item:
                item[name] = value
