"""Model names -> models: `provider:model`, `family:model@URL`, `scripted:FILE` (design 11); and from a run's bundle (P4 to P10).

The rows hold what a name stands for today. A run freezes the result in its bundle; resuming it builds the model from the bundle
alone, so that a changed or withdrawn row moves nothing. Only the key is looked up again, by the host that it belongs to.
"""

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from semel.adapters.models import scripted
from semel.adapters.models.controls import Controls, Reasoning, ToolChoice
from semel.adapters.models.deadline import Limits
from semel.adapters.models.endpoint import Endpoint, parse_endpoint
from semel.adapters.models.families import FAMILIES, built
from semel.adapters.models.family import Family
from semel.adapters.models.file_limits import NO_FORM
from semel.adapters.models.keys import ApiKey, Auth, Credential, KeyReader, key_from, key_variable
from semel.adapters.models.media import what_is
from semel.adapters.models.opaque import StatePolicies
from semel.adapters.models.pricing import Price
from semel.adapters.models.rows import ModelRow, Provider, rows
from semel.core.features import OPENROUTER_ECHO
from semel.core.media import is_text_kind
from semel.core.values import JSON, Bundle, Frozen, Media
from semel.errors import BadSettings, UnknownModel
from semel.ports.model import BundleRefused, ModelPort
from semel.ports.world import Clock

if TYPE_CHECKING:
    import httpx2

NOWHERE: Mapping[str, str] = {}
ACCESS_KEY, SECRET_KEY = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
GIVEN_IN_CODE = "the key source given in code"


class ModelOptions(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a caller may set for a model.

    `tool_choice`, `parallel_calls`, `reasoning`, `output_schema` and `cache` mean the same whatever the family; one that has no
    words for a choice refuses it. `body` holds further members of the request, such as temperature, in the family's own words.
    `dialect` overrides single fields of the server's dialect. `key_env` names the variable of the key, for a URL of one's own.
    `limits` and `key_env` are not part of the bundle: they may differ when a run is resumed.
    """

    max_output_tokens: int | None = None
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    reasoning: Reasoning | None = None
    output_schema: dict[str, JSON] | None = None
    cache: Literal["off", "short", "long"] | None = None
    body: dict[str, JSON] = msgspec.field(default_factory=dict)
    dialect: dict[str, JSON] = msgspec.field(default_factory=dict)
    price: Price | None = None
    key_env: str | None = None
    limits: Limits = Limits()

    @property
    def controls(self) -> Controls:
        """The choices that mean the same everywhere."""
        return Controls(
            tool_choice=self.tool_choice,
            parallel_calls=self.parallel_calls,
            reasoning=self.reasoning,
            output_schema=self.output_schema,
            cache=self.cache,
        )


def parse_options(raw: Mapping[str, JSON]) -> ModelOptions:
    """Model options from settings or an agent file. Raises BadSettings naming the field."""
    try:
        return msgspec.convert(dict(raw), ModelOptions)
    except msgspec.ValidationError as error:
        raise BadSettings(f"the model options cannot be used: {error}") from None


def resolve(spec: str, options: ModelOptions, environ: Mapping[str, str] = NOWHERE) -> Bundle:
    """What `spec` means today, without touching the network or a key. Raises UnknownModel or BadSettings.

    `environ` names the operator's own rows, and fills in what a base URL leaves open.
    """
    table = rows(environ)
    prefix, colon, name = spec.partition(":")
    if not colon or not name:
        near = _nearest(prefix, table) if colon else _nearest_model(prefix, table)
        raise UnknownModel(f"{_shown(spec)!r} names no model; write provider:model, such as {near}")
    if prefix == scripted.FAMILY:
        return scripted.scripted_bundle(name)
    model, _, url = name.rpartition("@")
    if prefix in FAMILIES and model:
        return _at_url(FAMILIES[prefix], model, parse_endpoint(url), options, table)
    if prefix in table:
        return _of_row(table[prefix], name, options, environ)
    if prefix in FAMILIES:
        raise UnknownModel(f"{_shown(spec)!r} names no server; write {prefix}:MODEL@https://host/v1")
    raise UnknownModel(
        f"{prefix!r} in {_shown(spec)!r} is no provider; did you mean {_nearest(prefix, table)}? "
        f"Known are {', '.join(sorted(table))}, {scripted.FAMILY}:FILE, and FAMILY:MODEL@https://host/v1 for any compatible "
        f"server, where FAMILY is {', '.join(sorted(FAMILIES))}"
    )


def _shown(spec: str) -> str:
    """A name that means nothing, without the URL that it may hold: in that may be a key (A13)."""
    end = min((at for mark in ("@", "://") if (at := spec.find(mark)) >= 0), default=len(spec))
    return spec if end == len(spec) else f"{spec[:end]}…"


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
    bundle = resolve(spec, options, environ)
    return _build(bundle, clock=clock, environ=environ, options=options, key=key, connector=connector)


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
    family = FAMILIES.get(scripted.SPOKEN if bundle.family == scripted.FAMILY else bundle.family)
    if family is None:
        raise BundleRefused("frozen_render_config_unverifiable", f"no wire family {bundle.family!r} in this build")
    if bundle.renderer not in family.renderers:
        raise BundleRefused(
            "renderer_version_drift", f"renderer {bundle.renderer} of {bundle.family}; this build has {sorted(family.renderers)}"
        )
    if bundle.family == scripted.FAMILY:
        return
    try:
        recorded = family.encode(family.decode(bundle.options))
        parse_endpoint(bundle.endpoint)
    except (msgspec.DecodeError, BadSettings) as error:
        raise BundleRefused("frozen_render_config_unverifiable", str(error)) from None
    if recorded != bundle.options:
        raise BundleRefused("frozen_render_config_drift", f"options {bundle.options} read back as {recorded}")


def differ_in_auth(recorded: Bundle, today: Bundle) -> bool:
    """Whether two bundles ask the same model at the same endpoint with the same bytes, and only open the door in another way."""
    family = FAMILIES.get(recorded.family)
    if family is None or recorded == today or recorded.family != today.family:
        return False
    was, found = family.decode(recorded.options), family.decode(today.options)
    found = replace(found, dialect=replace(found.dialect, auth=was.dialect.auth))
    return replace(today, options=family.encode(found)) == recorded


def key_problem(bundle: Bundle, *, environ: Mapping[str, str], options: ModelOptions | None = None) -> str | None:
    """What to do about a key that `bundle` needs and `environ` lacks, None if nothing. For a check before a run."""
    if bundle.family == scripted.FAMILY:
        return None
    endpoint, options = parse_endpoint(bundle.endpoint), options or ModelOptions()
    if _auth(bundle) == "sigv4":
        missing = [name for name in (ACCESS_KEY, SECRET_KEY) if not environ.get(name, "").strip()]
        needed = bool(missing) and not _may_be_unsigned(endpoint, options, environ)
        return f"no keys for {endpoint.host}: set {' and '.join(missing)}" if needed else None
    name, optional = _key_name(endpoint, options, environ)
    return None if optional or environ.get(name, "").strip() else f"no key for {endpoint.host}: set {name}"


def cost_currency(bundle: Bundle) -> str | None:
    """The currency of what answers of this model cost, so that a cost limit can hold; None where no price is known."""
    family = FAMILIES.get(bundle.family)
    if family is None:
        return None
    options = family.decode(bundle.options)
    told: str | None = getattr(options.dialect, "cost_currency", None)
    return told if told is not None or options.price is None else options.price.currency


def refused_file(bundle: Bundle, files: Sequence[Media]) -> str | None:
    """Which file of one message is more than the server of this model takes, and by which limit; None if none is."""
    family = FAMILIES.get(bundle.family)
    if family is None:
        return None  # a script, or a model of somebody's own, of which nothing is known
    takes = family.takes(family.decode(bundle.options).dialect)
    asked = [media for media in files if not is_text_kind(media.media_type)]  # text is never too much: it has another form
    for media, verdict in zip(asked, takes.verdicts(asked, {}), strict=True):
        if verdict not in (None, NO_FORM):  # what there is no form for is told of in words
            return f"{what_is(media)}: {takes.why(verdict, media)} ({verdict} of {bundle.family})"
    return None


def state_policies_of(bundle: Bundle) -> StatePolicies:
    """What a bundle's dialect keeps of provider state beside what every run does (M2, M15, M17)."""
    family = FAMILIES.get(bundle.family)
    if family is None:
        return StatePolicies()
    dialect = family.decode(bundle.options).dialect
    openrouter = getattr(dialect, "echo_reasoning", False) and getattr(dialect, "reasoning", "") == "object"
    return StatePolicies(text_state=getattr(dialect, "text_state", False), reasoning_echo=OPENROUTER_ECHO if openrouter else None)


def known_of(family: str, endpoint: str, model: str, environ: Mapping[str, str] = NOWHERE) -> ModelRow:
    """What the catalog knows today of the model of a bundle; nothing for one that no row lists at its address."""
    for provider in rows(environ).values():
        row = provider.models.get(model) if provider.family == family else None
        if row is not None and _serves_at(provider, endpoint, environ):
            return row
    return ModelRow()


def _serves_at(provider: Provider, endpoint: str, environ: Mapping[str, str]) -> bool:
    try:
        return parse_endpoint(provider.url(environ)).base_url == endpoint
    except BadSettings:  # a variable of its address is not set, so nobody asks it
        return False


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
    from semel.adapters.models.transport import Transport

    endpoint = parse_endpoint(bundle.endpoint)
    held = _credential(bundle, endpoint, options=options, environ=environ, key=key, clock=clock)
    transport = Transport(endpoint=endpoint, key=held, clock=clock, limits=options.limits, connector=connector)
    return built(bundle, transport=transport, clock=clock)


def _credential(
    bundle: Bundle,
    endpoint: Endpoint,
    *,
    options: ModelOptions,
    environ: Mapping[str, str],
    key: KeyReader | None,
    clock: Clock,
) -> Credential:
    """What opens the endpoint, in the shape that the bundle froze (P5)."""
    auth = _auth(bundle)
    if auth == "sigv4":
        from semel.adapters.models.bedrock_converse.sigv4 import SigningKeys, region_of

        said = FAMILIES[bundle.family].decode(bundle.options).dialect.region
        region = said or region_of(endpoint.host) or environ.get("AWS_REGION", "us-east-1")
        unsigned = _may_be_unsigned(endpoint, options, environ)
        held = NOWHERE if unsigned and not endpoint.loopback else environ
        return SigningKeys(host=endpoint.host, region=region, environ=held, clock=clock, optional=unsigned)
    name, optional = _key_name(endpoint, options, environ)
    if key is not None:
        return ApiKey(host=endpoint.host, name=GIVEN_IN_CODE, read=key, optional=optional, auth=auth)
    return key_from(environ, name, endpoint, optional=optional, auth=auth)


def _auth(bundle: Bundle) -> Auth:
    auth: Auth = FAMILIES[bundle.family].decode(bundle.options).dialect.auth
    return auth


def _may_be_unsigned(endpoint: Endpoint, options: ModelOptions, environ: Mapping[str, str]) -> bool:
    """Whether a host gets no signature: one of no row, unless the operator named it by `key_env`, and this machine."""
    named = options.key_env is not None or any(_owns(row, endpoint.host) for row in rows(environ).values())
    return endpoint.loopback or not named


def _at_url(family: Family[Any], model: str, endpoint: Endpoint, options: ModelOptions, table: dict[str, Provider]) -> Bundle:
    """A model at a URL. Where a provider of the catalog serves there in this family, its dialect is the server's."""
    provider = next((row for row in table.values() if row.family == family.name and _owns(row, endpoint.host)), None)
    return _bundle(family, model, endpoint, provider, options)


def _of_row(provider: Provider, model: str, options: ModelOptions, environ: Mapping[str, str]) -> Bundle:
    family = FAMILIES.get(provider.family)
    if family is None:
        raise BadSettings(f"the model catalog names a family {provider.family!r}; known are {', '.join(sorted(FAMILIES))}")
    if provider.dialect.get("auth") == "sigv4" and environ.get(provider.key or "", "").strip():
        provider = replace(provider, dialect={**provider.dialect, "auth": "bearer"})  # a key of its own needs no signature
    return _bundle(family, model, parse_endpoint(provider.url(environ)), provider, options)


def _bundle(family: Family[Any], model: str, endpoint: Endpoint, provider: Provider | None, options: ModelOptions) -> Bundle:
    row = ModelRow() if provider is None else provider.models.get(model, ModelRow())
    usual = {} if provider is None else provider.dialect
    chosen = family.options(
        dialect=family.dialect(family.plain, {**usual, **row.dialect, **options.dialect}),
        body=options.body,
        price=options.price or row.price,
        controls=options.controls,
    )
    limit = row.max_output if options.max_output_tokens is None else options.max_output_tokens
    return family.bundle(model, endpoint.base_url, chosen, max_output_tokens=limit)


def _owns(provider: Provider, host: str) -> bool:
    """Whether a provider with a key serves at `host`; loopback ports are nobody's."""
    return provider.key is not None and provider.serves(host)


def _key_name(endpoint: Endpoint, options: ModelOptions, environ: Mapping[str, str]) -> tuple[str, bool]:
    """The variable of an endpoint's key, and whether it may be unset. A provider's own key goes to the provider's host only."""
    if options.key_env is not None:
        return options.key_env, endpoint.loopback
    for provider in rows(environ).values():
        if provider.key is not None and _owns(provider, endpoint.host):
            return provider.key, False
    return key_variable(endpoint.host), True


def _nearest_model(name: str, table: dict[str, Provider]) -> str:
    """The example whose model has a name like this one."""
    examples = {row.example.partition(":")[2].lower(): row.example for row in reversed(table.values()) if row.example}
    close = difflib.get_close_matches(name.lower(), examples, n=1)
    return examples[close[0]] if close else _nearest(name, table)


def _nearest(prefix: str, table: dict[str, Provider]) -> str:
    close = difflib.get_close_matches(prefix.lower(), table, n=1, cutoff=0.0)
    return table[close[0]].example or f"{close[0]}:MODEL"
