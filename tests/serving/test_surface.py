"""The whole surface of a server under requests that a program makes up from its description.

Positive ones follow the description, negative ones break it somewhere. Whatever comes: no fault of the
server, nothing of its machine in an answer, and answers as they are described.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from starlette.routing import Route

from cotext.serving.application import DIALECTS
from cotext.serving.errors import Dialects
from cotext.serving.systems import Systems
from tests.loops import loop_over
from tests.serving.loopback import served
from tests.serving.test_deepl_specification import SPECIFICATION
from tests.serving.tiny_server import tiny_application

SURFACE = Path(__file__).with_name("surface.yaml")
METHODS = ("get", "post", "put", "patch", "delete")
CHECKOUT = re.escape(str(Path(__file__).parents[2]))
LEAKS = re.compile(rf"Traceback|{CHECKOUT}|/tmp/|/home/|site-packages|\.py\b|Exception\b|Error:")


def operations(path: Path) -> list[tuple[str, str]]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))["paths"]
    return [(place, method) for place, what in found.items() for method in METHODS if method in what]


@cache
def described(path: Path) -> Any:
    import schemathesis

    content = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return schemathesis.openapi.from_dict(content)


@pytest.fixture(scope="module")
def server(systems: Systems, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Texts are short here: hundreds of them are translated."""
    state = tmp_path_factory.mktemp("state")
    limits = {"max_text_bytes": 300, "max_file_bytes": 4096, "max_sentences": 20, "page": True}
    with served(tiny_application(systems, state, **limits)) as client:
        yield client


def attack(server: httpx.Client, description: Path, place: str, method: str, examples: int) -> None:
    import schemathesis
    from schemathesis.checks import response_schema_conformance

    operation = described(description)[place][method.upper()]
    headers = {"authorization": "DeepL-Auth-Key k"} if description == SPECIFICATION else {}
    modes = list(schemathesis.GenerationMode)
    if not operation.body and not operation.query:
        modes.remove(schemathesis.GenerationMode.NEGATIVE)  # nothing in it could be broken
    for mode in modes:
        # Of the cases that one is made of, some have parts that cannot be negated, which takes long to see.
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
            answer = case.call(base_url=str(server.base_url), headers=headers, timeout=30)
            said = (place, method, answer.status_code, answer.text[:500])
            assert answer.status_code < 500 or answer.status_code == 503, said
            assert not LEAKS.search(answer.text), said
            assert answer.headers["x-content-type-options"] == ["nosniff"], said
            if description == SURFACE:
                case.validate_response(answer, checks=[response_schema_conformance])

        ask()


@loop_over(("place", "method"), operations(SURFACE))
def test_the_surface_stands_made_up_requests(server: httpx.Client, place: str, method: str) -> None:
    attack(server, SURFACE, place, method, 3)


@pytest.mark.hostile
@pytest.mark.parametrize(("place", "method"), operations(SURFACE))
def test_the_surface_stands_many_made_up_requests(server: httpx.Client, place: str, method: str) -> None:
    attack(server, SURFACE, place, method, 100)


OF_DEEPL = ("/v2/translate", "/v2/document", "/v2/glossaries", "/v2/usage", "/v2/languages")


@loop_over("place", OF_DEEPL)
def test_deepl_stands_made_up_requests(server: httpx.Client, place: str) -> None:
    attack_deepl(server, place, 3)


@pytest.mark.hostile
def test_deepl_stands_many_made_up_requests(server: httpx.Client) -> None:
    for place in {route.path for route in Dialects(("deepl",)).routes if isinstance(route, Route)}:
        attack_deepl(server, place, 100)


def attack_deepl(server: httpx.Client, place: str, examples: int) -> None:
    if not SPECIFICATION.is_file():
        pytest.skip(f"{SPECIFICATION} is not there")
    paths = described(SPECIFICATION).raw_schema["paths"]
    known = next(
        (path for path in paths if re.sub("{.*?}", "{}", path) == re.sub("{.*?}", "{}", place)), None
    )
    for method in METHODS if known is not None else ():
        if method in paths[known]:
            attack(server, SPECIFICATION, known, method, examples)


def test_the_description_has_all_addresses() -> None:
    listed = {(route.path, method.lower()) for route in Dialects(DIALECTS).routes
              if isinstance(route, Route) and "v2" not in route.path.split("/")
              for method in route.methods or () if method != "HEAD"}  # fmt: skip
    assert listed == set(operations(SURFACE))
