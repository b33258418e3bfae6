"""Serving: one process that translates for many clients, in the dialects that other programs speak.

`cotext serve RUN...` runs it; `cotext.serving.app(...)` is the same as an ASGI application, to be mounted.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from cotext.runtime.errors import CotextError

if TYPE_CHECKING:
    from cotext.serving.application import app

__all__ = ["app", "require_packages"]

# What a server stands on, beside what Cotext needs anyway.
PACKAGES: Final = ("starlette", "uvicorn", "python_multipart", "prometheus_client", "py3langid")


def require_packages() -> None:
    """Raise CotextError where a package is missing that a server needs."""
    for package in PACKAGES:
        try:
            import_module(package)
        except ModuleNotFoundError as error:
            raise CotextError(
                f"the server needs the package {error.name}, which is not installed; install it with "
                "`pip install 'cotext[serve]'`"
            ) from None


def __getattr__(name: str) -> Any:
    """`app` on first use: what it stands on comes with `cotext[serve]`."""
    if name == "app":
        require_packages()
        from cotext.serving.application import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
