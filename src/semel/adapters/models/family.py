"""A wire family as the catalog knows it: the versions of its renderer, its options, what may be asked of it (P6).

The options of a family have four members: `dialect` (how one server differs from the plain ones), `body` (further members of the
request), `price` and `controls`. They are stored in the bundle as canonical JSON text: fixed order, defaults omitted. The
defaults belong to a version of the renderer, so that a default may only change together with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from semel.adapters.models.controls import NEUTRAL, Abilities, Controls
from semel.adapters.models.file_limits import Takes
from semel.adapters.models.pricing import Price, check_price
from semel.core.values import JSON, Bundle, Frozen
from semel.errors import BadSettings


class FamilyOptions(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every family's options have; each narrows the type of `dialect`."""

    dialect: Any
    body: dict[str, JSON] = msgspec.field(default_factory=dict)
    price: Price | None = None
    controls: Controls = NEUTRAL


Own = TypeVar("Own", bound=FamilyOptions)


@dataclass(frozen=True, kw_only=True)
class Family(Generic[Own]):
    """One family. `reserved` are the members of a request that semel sets itself; `check` refuses what a dialect cannot say.

    `path` is what follows the base URL of a model; `takes` says what its newest renderer shows of files, text apart.
    """

    name: str
    renderer: int
    renderers: frozenset[int]
    options: type[Own]
    plain: Any
    reserved: frozenset[str]
    path: str
    abilities: Callable[[Any], Abilities]
    takes: Callable[[Any], Takes]
    check: Callable[[Any], None] = lambda _options: None

    def encode(self, options: Own) -> str:
        """Canonical JSON text of `options`. Raises BadSettings."""
        if taken := self.reserved.intersection(options.body):
            raise BadSettings(f"the model option body.{min(taken)} is set by semel itself; remove it")
        if not _plain(options.body) or not _plain(options.controls.output_schema):
            raise BadSettings("the model options hold a value that JSON cannot carry")
        check_price(options.price)
        self.abilities(options.dialect).check(options.controls, self.name)
        self.check(options)
        if options.dialect == self.plain:
            options = replace(options, dialect=self.plain)  # a default is left out only if it is the very object
        if options.controls == NEUTRAL:
            options = replace(options, controls=NEUTRAL)
        return msgspec.json.encode(options, order="deterministic").decode()

    def decode(self, text: str) -> Own:
        """The options of a bundle. Raises msgspec.ValidationError or msgspec.DecodeError."""
        return msgspec.json.decode(text.encode(), type=self.options)

    def dialect(self, base: Mapping[str, JSON] | Any, changes: Mapping[str, JSON]) -> Any:
        """A dialect with some fields changed by name. Raises BadSettings."""
        fields = base if isinstance(base, Mapping) else msgspec.to_builtins(base)
        try:
            return msgspec.convert({**fields, **changes}, type(self.plain))
        except msgspec.ValidationError as error:
            raise BadSettings(f"the model option dialect cannot be used: {error}") from None

    def bundle(self, model: str, endpoint: str, options: Own, *, max_output_tokens: int | None) -> Bundle:
        """What a run freezes. Raises BadSettings."""
        return Bundle(
            family=self.name,
            model=model,
            endpoint=endpoint,
            renderer=self.renderer,
            max_output_tokens=max_output_tokens,
            options=self.encode(options),
        )


def _plain(value: object) -> bool:
    """Whether a value is JSON through and through; a TOML date, for one, is not."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _plain(item) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    if isinstance(value, float):
        return value - value == 0
    return value is None or isinstance(value, (str, int))
