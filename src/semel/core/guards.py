"""What a resume checks before its run goes on: what the run was frozen with against what this process has (P3, P36)."""

from collections.abc import Mapping

from semel.core.records import Config
from semel.core.values import ToolSpec
from semel.errors import BadAgent


def check_wire(config: Config) -> None:
    """Raise BadAgent for a run of the ChatGPT wire profile: its log is read and replayed, and no transport here speaks it (M18).

    The profile is restored as it was recorded or not at all: another identity would be a different request (P36).
    """
    if config.chatgpt_wire is not None:
        raise BadAgent(
            "the open run was started with the ChatGPT wire profile, which this build reads and does not speak; "
            "resume it with the program that started it"
        )


def check_tools(frozen: tuple[ToolSpec, ...], found: Mapping[str, ToolSpec], agent: str) -> tuple[str, ...]:
    """Warnings for texts that changed; they act at the next run. Raises BadAgent for a missing tool, a schema or an effect.

    The model keeps seeing the frozen tools, so a changed text cannot change the bytes of the run's requests (P4).
    """
    warnings: list[str] = []
    for spec in frozen:
        now = found.get(spec.name)
        if now is None:
            raise BadAgent(f"agent {agent!r} has no tool {spec.name!r}, which its open run needs; add it back, then resume")
        for field in ("parameters", "effect", "sequential", "reconciles"):
            if getattr(now, field) != getattr(spec, field):
                what = "schema" if field == "parameters" else field
                raise BadAgent(
                    f"tool {spec.name!r} of agent {agent!r} has another {what} than its open run was started with; "
                    f"restore it, then resume"
                )
        if now.description != spec.description:
            warnings.append(f"the description of tool {spec.name!r} changed; it acts at the next run")
    return tuple(warnings)
