"""The rows of the catalog: shipped as TOML, extended by a file of the operator's own (A11: nobody else names a base URL)."""

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import msgspec

from semel.adapters.models.pricing import Price
from semel.core.values import JSON, Frozen
from semel.errors import BadSettings

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_VARIABLE = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")
_FILLED = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")  # what a variable may put into a URL: one label of a host


class ModelRow(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of one model: the tokens it can read and write, its price, its own differences."""

    context: int | None = None
    max_output: int | None = None
    price: Price | None = None
    dialect: dict[str, JSON] = msgspec.field(default_factory=dict)


class Provider(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: where a provider's models are served and how. `key` is the environment variable of its key."""

    family: str
    base_url: str
    key: str | None = None
    example: str = ""
    features: tuple[str, ...] = ()
    dialect: dict[str, JSON] = msgspec.field(default_factory=dict)
    quirks: tuple[str, ...] = ()
    models: dict[str, ModelRow] = msgspec.field(default_factory=dict)

    def url(self, environ: Mapping[str, str]) -> str:
        """The base URL with its variables filled in. Raises BadSettings for one that is unset or odd."""

        def fill(match: re.Match[str]) -> str:
            value = environ.get(match[1], "").strip()
            if not _FILLED.fullmatch(value):
                raise BadSettings(f"{self.base_url} needs {match[1]}, which is {repr(value) if value else 'not set'}")
            return value

        return _VARIABLE.sub(fill, self.base_url)

    def serves(self, host: str) -> bool:
        """Whether its key belongs to this host; a URL with variables stands for every value that they can have."""
        pattern = _VARIABLE.split(self.base_url.partition("://")[2].partition("/")[0].partition(":")[0])
        parts = [re.escape(part) if at % 2 == 0 else _FILLED.pattern for at, part in enumerate(pattern)]
        return re.fullmatch("".join(parts), host, re.IGNORECASE) is not None


def rows(environ: Mapping[str, str]) -> dict[str, Provider]:
    """All rows by name: the shipped ones, and on top of them those of the operator's file. Raises BadSettings.

    A row of theirs replaces a shipped one of its name; one that names no family adds to it, such as the price of a model.
    """
    path = user_file(environ)
    return _shipped() if path is None else {**_shipped(), **_read(path, path.stat().st_mtime_ns)}


def user_file(environ: Mapping[str, str]) -> Path | None:
    """The operator's own file; None if there is none. Raises BadSettings if the one that was named is missing."""
    if named := environ.get("SEMEL_MODELS"):
        if not Path(named).is_file():
            raise BadSettings(f"SEMEL_MODELS names {named}, which is no file")
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
    path = Path(home) / "semel" / "models.toml"
    return path if home and path.is_file() else None


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Provider]:
    return _parse((Path(__file__).parent / "catalog.toml").read_text(encoding="utf-8"), "the shipped catalog", {})


@lru_cache(maxsize=4)
def _read(path: Path, _changed: int) -> dict[str, Provider]:
    try:
        return _parse(path.read_text(encoding="utf-8"), str(path), _shipped())
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"the model catalog {path} cannot be read: {error}") from None


def _parse(text: str, name: str, base: Mapping[str, Provider]) -> dict[str, Provider]:
    try:
        table = msgspec.convert(_added(tomllib.loads(text), base), dict[str, Provider])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadSettings(f"the model catalog {name} cannot be read: {error}") from None
    for row in table:
        if not _NAME.fullmatch(row):
            raise BadSettings(f"the model catalog {name} has a row {row!r}; a name is of a to z, 0 to 9, - and _")
    return table


def _added(table: dict[str, JSON], base: Mapping[str, Provider]) -> dict[str, JSON]:
    """The table, where a row of a shipped name that names no family has the shipped one's members, too."""
    found = dict(table)
    for name, row in table.items():
        if name in base and isinstance(row, dict) and "family" not in row:
            shipped = msgspec.to_builtins(base[name])
            inner = {part: {**shipped.get(part, {}), **more} for part, more in row.items() if isinstance(more, dict)}
            found[name] = {**shipped, **row, **inner}
    return found
