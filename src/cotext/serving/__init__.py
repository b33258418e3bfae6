"""A translation server for many clients, with the APIs of DeepL and LibreTranslate.

`cotext serve RUN...` starts it; `cotext.serving.app(...)` returns it as an ASGI application.
"""

from typing import TYPE_CHECKING, Any, Final

from cotext.runtime import optional_module

if TYPE_CHECKING:
    from cotext.serving.application import app

__all__ = ["app", "require_packages"]

# Packages that only the server needs.
PACKAGES: Final = ("starlette", "uvicorn", "python_multipart", "py3langid")


def require_packages() -> None:
    """Raise CotextError if a package for the server is missing."""
    for package in PACKAGES:
        optional_module(package, "serve", "the server")


def __getattr__(name: str) -> Any:
    """Import `app` on first use, because its packages are optional."""
    if name == "app":
        require_packages()
        from cotext.serving.application import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
