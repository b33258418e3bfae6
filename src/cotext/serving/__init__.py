"""Serving: one process that translates for many clients, in the dialects that other programs speak.

`cotext serve RUN...` runs it; `cotext.serving.app(...)` is the same as an ASGI application, to be mounted.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cotext.serving.application import app

__all__ = ["app"]


def __getattr__(name: str) -> Any:
    """`app` on first use: what it stands on comes with `cotext[serve]`."""
    if name == "app":
        from cotext.serving.application import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
