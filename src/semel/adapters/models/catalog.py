"""Model names -> models: `provider:model`, `family:model@URL`, `scripted:FILE` (design 11); and from a run's bundle (P4 to P10).

The table holds what a name stands for today. A run freezes the result in its bundle; resuming it builds the model from the bundle
alone, so that a changed or withdrawn row moves nothing. Only the key is looked up again, by the host that it belongs to.
"""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from semel.adapters.models import scripted
from semel.adapters.models.deadline import Limits
from semel.adapters.models.endpoint import ApiKey, Endpoint, KeyReader, key_from, key_variable, parse_endpoint
from semel.adapters.models.openai_chat.options import OPENAI_CHAT as CHAT
from semel.adapters.models.openai_chat.options import PLAIN, ChatOptions, Dialect
from semel.adapters.models.pricing import Price
from semel.core.values import JSON, Bundle, Frozen
from semel.errors import BadSettings, UnknownModel
from semel.ports.model import BundleRefused, ModelPort
from semel.ports.world import Clock

if TYPE_CHECKING:
    import httpx2

OPENAI_CHAT = "openai_chat"


class Provider(Frozen, frozen=True, kw_only=True):
    """One row of the catalog: where a provider's models are served and how. `key` is the environment variable of its key."""

    base_url: str
    key: str | None = None
    dialect: Dialect = PLAIN
    example: str = ""


PROVIDERS: dict[str, Provider] = {
    "openai": Provider(
        base_url="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        dialect=Dialect(system_role="developer", max_tokens_field="max_completion_tokens", store=False),
        example="openai:gpt-5",
    ),
    "openrouter": Provider(
        base_url="https://openrouter.ai/api/v1",
        key="OPENROUTER_API_KEY",
        dialect=Dialect(include_usage=False, cost_currency="USD"),  # it always sends usage, with the cost in USD
        example="openrouter:anthropic/claude-opus-5.5",
    ),
    "deepseek": Provider(base_url="https://api.deepseek.com", key="DEEPSEEK_API_KEY", example="deepseek:deepseek-v4-pro"),
    "moonshot": Provider(base_url="https://api.moonshot.ai/v1", key="MOONSHOT_API_KEY", example="moonshot:kimi-k3"),
    "ollama": Provider(base_url="http://127.0.0.1:11434/v1", example="ollama:qwen3:30b"),
    "vllm": Provider(base_url="http://127.0.0.1:8000/v1", example="vllm:Qwen/Qwen3-30B-A3B"),
    "llamacpp": Provider(base_url="http://127.0.0.1:8080/v1", example="llamacpp:default"),
}


class ModelOptions(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller may set for a model. `body` holds further members of the request, such as temperature or reasoning_effort.

    `dialect` overrides single fields of the server's dialect. `key_env` names the variable of the key, for a URL of one's own.
    `limits` and `key_env` are not part of the bundle: they may differ when a run is resumed.
    """

    max_output_tokens: int | None = None
    body: dict[str, JSON] = msgspec.field(default_factory=dict)
    dialect: dict[str, JSON] = msgspec.field(default_factory=dict)
    price: Price | None = None
    key_env: str | None = None
    limits: Limits = Limits()


def parse_options(raw: Mapping[str, JSON]) -> ModelOptions:
    """Model options from settings or an agent file. Raises BadSettings naming the field."""
    try:
        return msgspec.convert(dict(raw), ModelOptions)
    except msgspec.ValidationError as error:
        raise BadSettings(f"the model options cannot be used: {error}") from None


def resolve(spec: str, options: ModelOptions) -> Bundle:
    """What `spec` means today, without touching the network or a key. Raises UnknownModel or BadSettings."""
    prefix, colon, name = spec.partition(":")
    if not colon or not name:
        raise UnknownModel(f"{spec!r} names no model; write provider:model, such as {_nearest(prefix)}")
    if prefix == scripted.FAMILY:
        return scripted.scripted_bundle(name)
    if prefix == OPENAI_CHAT:
        model, at, url = name.rpartition("@")
        if not at or not model:
            raise UnknownModel(f"{spec!r} names no server; write {OPENAI_CHAT}:MODEL@https://host/v1")
        return _bundle(model, parse_endpoint(url), _dialect_at(url), options)
    if prefix not in PROVIDERS:
        raise UnknownModel(
            f"{prefix!r} in {spec!r} is no provider; did you mean {_nearest(prefix)}? Known are {', '.join(sorted(PROVIDERS))}, "
            f"{scripted.FAMILY}:FILE, and {OPENAI_CHAT}:MODEL@https://host/v1 for any compatible server"
        )
    provider = PROVIDERS[prefix]
    return _bundle(name, parse_endpoint(provider.base_url), provider.dialect, options)


def build_model(
    spec: str,
    *,
    clock: Clock,
    environ: Mapping[str, str],
    options: ModelOptions | None = None,
    key: KeyReader | None = None,
    connector: "httpx2.AsyncBaseTransport | None" = None,
) -> ModelPort:
    """The model that `spec` names today.

    `key` replaces the environment variable as the source of the key; it is bound to the host of `spec` either way, and read
    anew for each request. `connector` replaces the sockets, for simulations. Raises UnknownModel or BadSettings.
    """
    options = options or ModelOptions()
    return _build(resolve(spec, options), clock=clock, environ=environ, options=options, key=key, connector=connector)


def restore_model(
    bundle: Bundle,
    *,
    clock: Clock,
    environ: Mapping[str, str],
    options: ModelOptions | None = None,
    key: KeyReader | None = None,
    connector: "httpx2.AsyncBaseTransport | None" = None,
) -> ModelPort:
    """The model of a run that is resumed, from its bundle alone; of `options` only `limits` and `key_env` are used.

    Raises BundleRefused, by name, before anything is sent: `frozen_render_config_unverifiable` (P8), `renderer_version_drift`
    (P7), `frozen_render_config_drift` (P9).
    """
    check_bundle(bundle)
    return _build(bundle, clock=clock, environ=environ, options=options or ModelOptions(), key=key, connector=connector)


def check_bundle(bundle: Bundle) -> None:
    """Raise BundleRefused unless this build renders `bundle` as the build that froze it did (P6 to P10)."""
    if bundle.family not in (OPENAI_CHAT, scripted.FAMILY):
        raise BundleRefused("frozen_render_config_unverifiable", f"no wire family {bundle.family!r} in this build")
    if bundle.renderer not in CHAT.renderers:
        raise BundleRefused(
            "renderer_version_drift", f"renderer {bundle.renderer} of {bundle.family}; this build has {sorted(CHAT.renderers)}"
        )
    if bundle.family == OPENAI_CHAT:
        try:
            recorded = CHAT.encode(CHAT.decode(bundle.options))
            parse_endpoint(bundle.endpoint)
        except (msgspec.DecodeError, BadSettings) as error:
            raise BundleRefused("frozen_render_config_unverifiable", str(error)) from None
        if recorded != bundle.options:
            raise BundleRefused("frozen_render_config_drift", f"options {bundle.options} read back as {recorded}")


def key_problem(bundle: Bundle, *, environ: Mapping[str, str], options: ModelOptions | None = None) -> str | None:
    """What to do about a key that `bundle` needs and `environ` lacks, None if nothing. For a check before a run."""
    if bundle.family != OPENAI_CHAT:
        return None
    endpoint = parse_endpoint(bundle.endpoint)
    name, optional = _key_name(endpoint, options or ModelOptions())
    return None if optional or environ.get(name, "").strip() else f"no key for {endpoint.host}: set {name}"


def has_price(bundle: Bundle) -> bool:
    """Whether answers of this model come with a cost, so that a cost limit can hold."""
    if bundle.family != OPENAI_CHAT:
        return False
    options = CHAT.decode(bundle.options)
    return options.price is not None or options.dialect.cost_currency is not None


def _build(
    bundle: Bundle,
    *,
    clock: Clock,
    environ: Mapping[str, str],
    options: ModelOptions,
    key: KeyReader | None,
    connector: "httpx2.AsyncBaseTransport | None",
) -> ModelPort:
    if bundle.family == scripted.FAMILY:
        script = scripted.load_script(bundle.endpoint)
        return scripted.ScriptedModel(bundle=bundle, script=script, clock=clock, limits=options.limits)
    from semel.adapters.models.openai_chat.model import build
    from semel.adapters.models.transport import Transport

    endpoint = parse_endpoint(bundle.endpoint)
    name, optional = _key_name(endpoint, options)
    held = key_from(environ, name, endpoint, optional=optional)
    if key is not None:
        held = ApiKey(host=endpoint.host, name="the key source given in code", read=key, optional=optional)
    transport = Transport(endpoint=endpoint, key=held, clock=clock, limits=options.limits, connector=connector)
    return build(bundle=bundle, options=CHAT.decode(bundle.options), transport=transport, clock=clock)


def _bundle(model: str, endpoint: Endpoint, dialect: Dialect, options: ModelOptions) -> Bundle:
    dialect = CHAT.dialect(dialect, options.dialect)
    chat = ChatOptions(dialect=dialect, body=options.body, price=options.price)
    return CHAT.bundle(model, endpoint.base_url, chat, max_output_tokens=options.max_output_tokens)


def _at_host(host: str) -> Provider | None:
    """The provider that serves at `host`; loopback ports are nobody's."""
    return next((row for row in PROVIDERS.values() if row.key is not None and parse_endpoint(row.base_url).host == host), None)


def _dialect_at(url: str) -> Dialect:
    provider = _at_host(parse_endpoint(url).host)
    return PLAIN if provider is None else provider.dialect


def _key_name(endpoint: Endpoint, options: ModelOptions) -> tuple[str, bool]:
    """The variable of an endpoint's key, and whether it may be unset. A provider's own key goes to the provider's host only."""
    provider = _at_host(endpoint.host)
    if options.key_env is not None:
        return options.key_env, endpoint.loopback
    if provider is not None and provider.key is not None:
        return provider.key, False
    return key_variable(endpoint.host), True


def _nearest(prefix: str) -> str:
    close = difflib.get_close_matches(prefix.lower(), PROVIDERS, n=1, cutoff=0.0)
    return PROVIDERS[close[0]].example
