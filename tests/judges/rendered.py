"""Keeps every request that this process renders, so that the last test can have all of them judged."""

from functools import wraps

from semel.adapters.models.rendering import Renderer

REQUESTS: dict[str, tuple[str, bytes]] = {}
"""By digest: the family and the body."""


def keep() -> None:
    """From now on, keep what every renderer renders."""
    if hasattr(Renderer.render, "__wrapped__"):
        return
    render = Renderer.render

    @wraps(render)
    def keeping(self, prompt):
        request = render(self, prompt)
        bundle = getattr(self._form, "_bundle", None)
        if bundle is not None:
            REQUESTS[f"{bundle.family} {request.sha256}"] = (bundle.family, request.body)
        return request

    Renderer.render = keeping
