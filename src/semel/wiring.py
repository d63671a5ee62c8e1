"""Settings to ports: the only module that names adapters. Imports them when they are needed, so that start-up stays light."""

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semel.core.features import KNOWN
from semel.core.values import Bundle, Media
from semel.engine.resume import Ground
from semel.errors import BadSettings
from semel.ports.hook import NamedHook
from semel.ports.model import ModelPort
from semel.ports.parked import ParkedHook
from semel.ports.tool import ToolPort
from semel.ports.world import Clock
from semel.settings import PARKED_VARIABLE, Settings

if TYPE_CHECKING:
    from io import BufferedReader

    from semel.adapters.file.backup import CopyList
    from semel.adapters.file.disk import Disk
    from semel.adapters.file.doctor import Finding
    from semel.adapters.file.repair import Loss
    from semel.adapters.file.store import FileStore
    from semel.adapters.models.opaque import StatePolicies
    from semel.ports.source import ToolSource


def ground_of(settings: Settings, disk: "Disk | None" = None) -> Ground:
    """The embedded default: one directory, system clock, random ids, and a socket for others. Raises BadSettings.

    Another `disk` is for `bench`, which counts.
    """
    from semel.adapters.control.client import UnixControl
    from semel.adapters.system import SystemClock, SystemIds

    store, clock = store_of(settings, disk), SystemClock()
    return Ground(store=store, clock=clock, ids=SystemIds(), parked=parked_hook(settings), control=UnixControl(store))


def store_of(settings: Settings, disk: "Disk | None" = None) -> "FileStore":
    """The logs of a state directory, for those who look at files: `verify` and `tail --follow`."""
    from semel.adapters.file.store import FileStore
    from semel.adapters.system import SystemClock

    return FileStore(settings.state, SystemClock(), known=KNOWN, disk=disk, inline_sync=settings.inline_sync)


def parked_hook(settings: Settings) -> ParkedHook | None:
    """Who is told that a session waits for a person, each waiting once. Raises BadSettings for a command that is none."""
    if settings.on_parked is None:
        return None
    from semel.adapters.parked.once import Once
    from semel.adapters.system import SystemClock

    hook: ParkedHook
    if settings.on_parked.startswith(("http://", "https://")):
        from semel.adapters.parked.webhook import WebHook

        hook = WebHook(settings.on_parked, SystemClock())
    else:
        from semel.adapters.parked.command import CommandHook
        from semel.adapters.tools.command import child_environment

        hook = CommandHook(_argv_of(settings.on_parked), child_environment(os.environ, ()), SystemClock())
    return Once(hook, settings.state / "told")


def _argv_of(command: str) -> Sequence[str]:
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise BadSettings(f"{PARKED_VARIABLE} is no command: {error}") from None
    if not argv:
        raise BadSettings(f"{PARKED_VARIABLE} is empty; unset it, or name a command or a URL")
    return argv


def model_named(spec: str, options: Mapping[str, object], clock: Clock) -> ModelPort:
    """The model that a name stands for today. Raises UnknownModel, BadSettings."""
    from semel.adapters.models.catalog import build_model, parse_options

    return build_model(spec, clock=clock, environ=os.environ, options=parse_options(options))


def model_frozen(bundle: Bundle, options: Mapping[str, object], clock: Clock) -> ModelPort:
    """The model of a run that is resumed, from what it froze (P4). Raises BundleRefused."""
    from semel.adapters.models.catalog import parse_options, restore_model

    return restore_model(bundle, clock=clock, environ=os.environ, options=parse_options(options))


def opened_otherwise(recorded: Bundle, today: Bundle) -> bool:
    """Whether today's bundle is the recorded one but for how a key is shown to its endpoint."""
    from semel.adapters.models.catalog import differ_in_auth

    return differ_in_auth(recorded, today)


def key_missing(bundle: Bundle, options: Mapping[str, object]) -> str | None:
    """What to do about a key that a model needs and that is not there; None if all is well."""
    from semel.adapters.models.catalog import key_problem, parse_options

    return key_problem(bundle, environ=os.environ, options=parse_options(options))


def state_policies(bundle: Bundle) -> "StatePolicies":
    """What a run with this bundle keeps of its provider's state beside text."""
    from semel.adapters.models.catalog import state_policies_of

    return state_policies_of(bundle)


def cost_currency(bundle: Bundle) -> str | None:
    """The currency in which a cost limit can hold for this model; None where no price is known."""
    from semel.adapters.models.catalog import cost_currency as currency

    return currency(bundle)


def window_of(family: str, endpoint: str, model: str) -> int | None:
    """How many tokens a request to this model may have, as the catalog says today; None where that is not known."""
    from semel.adapters.models.catalog import known_of

    return known_of(family, endpoint, model, os.environ).context


def refused_file(bundle: Bundle, files: Sequence[Media]) -> str | None:
    """Which file of one message is more than this model's server takes, and by which limit; None if none is."""
    from semel.adapters.models.catalog import refused_file as look

    return look(bundle, files)


def as_tool(given: "ToolPort | Callable[..., object]") -> ToolPort:
    """A tool as it is; a plain function as a tool with the default effect, `once`. Raises BadAgent."""
    from semel.adapters.tools.function import tool

    return tool(given) if not hasattr(given, "spec") else given  # type: ignore[return-value]  # what has a spec is a port


def as_hook(function: Callable[[Any], object], phase: str) -> NamedHook:
    """A function as a hook of that phase. Raises BadAgent."""
    from semel.adapters.tools.hooks import as_hook as build

    return build(function, phase)


def command_tool(name: str, table: Mapping[str, Any], directory: Path) -> ToolPort:
    """The tool that a table of an agent file declares; it runs in `directory`. Raises BadAgent."""
    from semel.adapters.system import SystemClock
    from semel.adapters.tools.command import command_tool as build

    return build(name, table, directory=directory, clock=SystemClock())


def reconcile_command(name: str, table: Mapping[str, Any], directory: Path, arguments: Mapping[str, Any], key: str) -> str | None:
    """The line for a shell that asks what became of a call of a tool that a table of an agent file declares. Raises BadAgent."""
    from semel.adapters.system import SystemClock
    from semel.adapters.tools.command import command_tool as build

    return build(name, table, directory=directory, clock=SystemClock()).reconcile_command(arguments, key)


def mcp_server(name: str, table: Mapping[str, Any], directory: Path) -> "ToolSource":
    """The MCP server that a table of an agent file declares; it runs in `directory`. Raises BadAgent."""
    from semel.adapters.system import SystemClock
    from semel.adapters.tools.mcp.source import server_of_table as build

    return build(name, table, directory=directory, clock=SystemClock())


def mcp_keys() -> Sequence[str]:
    """What a table of an MCP server may say."""
    from semel.adapters.tools.mcp.source import McpDeclaration

    return McpDeclaration.__struct_fields__


def command_keys() -> Sequence[str]:
    """What a table of a command tool may say."""
    from semel.adapters.tools.command import CommandDeclaration

    return CommandDeclaration.__struct_fields__


def check_model_options(options: Mapping[str, object]) -> None:
    """Raise BadSettings that names the field if these are no model options."""
    from semel.adapters.models.catalog import parse_options

    parse_options(options)


def model_option_keys() -> Sequence[str]:
    """What model options may say."""
    from semel.adapters.models.catalog import ModelOptions

    return ModelOptions.__struct_fields__


def providers() -> Sequence[Mapping[str, Any]]:
    """Every provider: `provider`, `family`, `example`, `url`, `key` (a variable or None), `features`, and known `models`.

    `cost_currency` is that of the costs that the server itself reports, None where it reports none. Of a model, what is None is
    not known.
    """
    from msgspec import to_builtins

    from semel.adapters.models.rows import rows

    return [
        {
            "provider": name,
            "family": row.family,
            "example": row.example,
            "url": row.base_url,
            "key": row.key,
            "features": list(row.features),
            "cost_currency": row.dialect.get("cost_currency"),
            "models": {
                model: {"context": known.context, "max_output": known.max_output, "price": to_builtins(known.price)}
                for model, known in row.models.items()
            },
        }
        for name, row in rows(os.environ).items()
    ]


def families() -> Sequence[str]:
    """The wire families that a URL may be spoken to in."""
    from semel.adapters.models.families import FAMILIES

    return tuple(FAMILIES)


async def model_checked(spec: str) -> Sequence[tuple[str, bool | None, str]]:
    """What one real request says of a model: what was looked at, whether it works, and what was seen."""
    from semel.adapters.models.check import check_model
    from semel.adapters.system import SystemClock

    found = await check_model(spec, clock=SystemClock(), environ=os.environ)
    return [(finding.what, finding.works, finding.seen) for finding in found]


def root_of(log: Path) -> Path | None:
    """The state directory that a log lies in; None for a log that was copied elsewhere."""
    from semel.adapters.file.root import SESSIONS

    return log.absolute().parents[2] if len(log.absolute().parents) > 3 and log.absolute().parents[1].name == SESSIONS else None


def opener(log: Path) -> "Callable[[Path], BufferedReader] | None":
    """How the files of a session are opened to be checked: as itself does. None for a log that was copied elsewhere."""
    from functools import partial

    from semel.adapters.file.disk import Disk
    from semel.adapters.file.root import Root
    from semel.adapters.file.trusted import open_trusted

    root = root_of(log)
    return None if root is None else partial(open_trusted, Root(root, Disk()))


def floor_path(root: Path) -> Path:
    """Where the feature floor of a state directory is."""
    from semel.adapters.file.floor import NAME

    return root / NAME


def floor_names(root: Path) -> frozenset[str]:
    """The feature floor of a state directory. Raises StoreError where it cannot be trusted."""
    from semel.adapters.file.disk import Disk
    from semel.adapters.file.floor import FileFloor
    from semel.adapters.file.root import Root

    return FileFloor(Root(root, Disk())).names()


def examine(settings: Settings) -> "Iterator[Finding]":
    """What can be said about a state directory. Changes nothing."""
    from semel.adapters.file.doctor import examine as look

    return look(store_of(settings))


def assess(settings: Settings, session: str) -> "Loss | None":
    """What a repair of a log would give up; None where it is not damaged. Raises UnknownSession, NewerWriter."""
    from semel.adapters.file.repair import assess as look

    return look(store_of(settings).root, session)


def repair(settings: Settings, session: str) -> "Loss | None":
    """Cut a damaged log where its damage starts. Raises UnknownSession, NewerWriter, SessionBusy."""
    from semel.adapters.file.repair import repair as cut

    return cut(store_of(settings).root, session)


def parking_ground(settings: Settings) -> "tuple[Ground, FileStore]":
    """What a session is opened on whose run must be closed before anybody goes on with it."""
    from semel.adapters.file.store import FileStore
    from semel.adapters.system import SystemClock, SystemIds

    store = FileStore(settings.state, SystemClock(), known=KNOWN, inline_sync=settings.inline_sync, parking=True)
    return Ground(store=store, clock=SystemClock(), ids=SystemIds()), store


def back_up(settings: Settings, target: Path) -> "CopyList":
    """Copy all sessions into a new directory."""
    from semel.adapters.file.backup import back_up as copy
    from semel.adapters.system import SystemClock

    return copy(store_of(settings), target, SystemClock().now_ms())


def restore(settings: Settings, source: Path) -> "CopyList":
    """Put a copy in place of a state directory that is new or empty. Raises BadBackup, UsageError."""
    from semel.adapters.file.backup import restore as copy

    return copy(source, store_of(settings).root)
