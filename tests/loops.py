"""Many cheap cases in one test: `@loop_over` has the same arguments as `pytest.mark.parametrize`.

A separate test costs more than such a case. The error of a case that fails names the case.
"""

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def loop_over(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Return a decorator that runs a test with each of the values as its arguments `names`.

    Each case begins with the same random numbers, with an empty `tmp_path`, and without the patches of
    earlier cases. All cases share the other fixtures.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [tuple(value) if len(keys) > 1 else (value,) for value in values]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            import torch

            for number, row in enumerate(rows):
                own = dict(fixtures)
                torch.default_generator.manual_seed(0)
                if "tmp_path" in own:
                    own["tmp_path"] = own["tmp_path"] / f"case-{number}"
                    own["tmp_path"].mkdir()
                with pytest.MonkeyPatch.context() as patch:
                    if "monkeypatch" in own:
                        own["monkeypatch"] = patch
                    try:
                        test(*args, **own, **dict(zip(keys, row, strict=True)))
                    except BaseException as error:
                        error.add_note(f"in case {number}: {row!r:.300}")
                        raise

        signature = inspect.signature(test)
        kept = [each for name, each in signature.parameters.items() if name not in keys]
        assert len(kept) + len(keys) == len(signature.parameters)
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return decorate
