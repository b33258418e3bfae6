"""The DeepL API under requests that a program makes up from DeepL's specification.

Positive ones follow it, negative ones break it somewhere. Whatever comes: no fault of the server, and nothing
of its machine in an answer.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cotext.serving import deepl
from cotext.serving.systems import Systems
from tests.loops import loop_over
from tests.serving.loopback import served
from tests.serving.test_deepl_specification import specification
from tests.serving.tiny_server import tiny_application

CHECKOUT = re.escape(str(Path(__file__).parents[2]))
LEAKS = re.compile(rf"Traceback|{CHECKOUT}|/tmp/|/home/|site-packages|\.py\b|Exception\b|Error:")
PLACES = ("/v2/translate", "/v2/document", "/v2/glossaries", "/v2/usage", "/v2/languages")


@cache
def described() -> Any:
    import schemathesis

    return schemathesis.openapi.from_dict(specification())


@pytest.fixture(scope="module")
def server(systems: Systems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Texts are short here: hundreds of them are translated."""
    state = tmp_path_factory.mktemp("state")
    limits = {"max_text_bytes": 300, "max_file_bytes": 4096, "max_sentences": 20, "page": True}
    with served(tiny_application(systems, state, **limits)) as client:
        yield client


def attack(server: httpx.Client, place: str, examples: int) -> None:
    import schemathesis

    paths = described().raw_schema["paths"]
    known = next((path for path in paths if re.sub("{.*?}", "", path) == re.sub("{.*?}", "", place)), None)
    for method in ("get", "post", "put", "patch", "delete") if known is not None else ():
        if method not in paths[known]:
            continue
        operation = described()[known][method.upper()]
        modes = list(schemathesis.GenerationMode)
        if not operation.body and not operation.query:
            modes.remove(schemathesis.GenerationMode.NEGATIVE)  # nothing in it could be broken
        for mode in modes:
            # Of the cases that one is made of, some have parts that cannot be negated.
            unhealthy = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.large_base_example]

            @given(case=operation.as_strategy(generation_mode=mode))
            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=[*unhealthy, HealthCheck.data_too_large],
            )
            def ask(case: Any) -> None:
                headers = {"authorization": "DeepL-Auth-Key k"}
                answer = case.call(base_url=str(server.base_url), headers=headers, timeout=30)
                said = (place, method, answer.status_code, answer.text[:500])  # noqa: B023
                assert answer.status_code < 500 or answer.status_code == 503, said
                assert not LEAKS.search(answer.text), said
                assert answer.headers["x-content-type-options"] == ["nosniff"], said

            ask()


@loop_over("place", PLACES)
def test_deepl_stands_made_up_requests(server: httpx.Client, place: str) -> None:
    attack(server, place, 3)


@pytest.mark.hostile
def test_deepl_stands_many_made_up_requests(server: httpx.Client) -> None:
    for place in {route.path for route in deepl.routes()}:
        attack(server, place, 100)
