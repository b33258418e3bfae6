"""What every request passes: who may ask, from where, how much, and what is told when it goes wrong."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from cotext.runtime import CotextError
from cotext.serving import own_api
from cotext.serving.application import application
from cotext.serving.keys import Rates, add_key, revoke_key
from cotext.serving.record import LOGGER, JsonLines, RequestError, without_paths
from cotext.serving.requests import client_of, fields, whole_number
from cotext.serving.service import Service
from cotext.serving.settings import ServerSettings
from cotext.serving.systems import Systems
from tests.loops import loop_over
from tests.serving.loopback import sent_for

SECRET = "Geheimnis"


async def _who(request: Request) -> Response:
    client = client_of(request, request.headers.get("x-key"))
    await asyncio.sleep(float(request.query_params.get("wait", 0)))
    return JSONResponse({"client": client})


async def _probe(request: Request) -> Response:
    what = request.path_params["what"]
    if what == "fields":
        found = await fields(request)
        return JSONResponse({name: [str(v) for v in value] if isinstance(value, list) else value
                             for name, value in found.items()})  # fmt: skip
    if what == "cotext":
        raise CotextError(f"/home/somebody/secret/{SECRET}.yaml: cannot be read; see and/or /v2")
    if what == "stream":

        async def pieces() -> Any:
            yield b"one"
            raise KeyError(SECRET)

        return StreamingResponse(pieces())
    raise KeyError(SECRET)


class World:
    def __init__(self, service: Service) -> None:
        self.app = application(service)

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def once() -> httpx.Response:
            return await self.session(more.pop("base", "http://127.0.0.1:5000")).request(method, path, **more)

        return asyncio.run(once())

    def session(self, base: str = "http://127.0.0.1:5000") -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=base)


@pytest.fixture
def made(systems: Systems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Servers with routes that show what handlers are given, and fail in many ways."""
    probes = [
        Route("/probe/{what}", _probe, methods=["POST"]),
        Route("/probe", _who, methods=["GET", "POST"]),
    ]
    routes = [*own_api.routes(), *probes]
    monkeypatch.setattr(own_api, "routes", lambda: routes)

    def make(**settings: Any) -> World:
        return World(Service(systems, ServerSettings(state=tmp_path / "state", **settings)))

    return make


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, LOGGER)
    return lambda: [json.loads(JsonLines().format(record)) for record in caplog.records]


# --- errors


def test_a_fault_of_ours_is_told_without_text_and_logged_without_text(made: Any, lines: Any) -> None:
    answer = made().ask("POST", "/probe/fault", json={"q": SECRET})
    assert answer.status_code == 500
    assert list(answer.json()) == ["message"]
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text
    error, request = lines()
    assert error["error"] == "KeyError"
    assert error["request"] == request["request"] == answer.headers["x-request-id"]
    assert error["request"] in answer.text
    assert any("test_gate.py" in place for place in error["at"])
    assert SECRET not in json.dumps([error, request])
    assert request["status"] == 500
    assert request["route"] == "/probe/{what}"


def test_the_log_names_the_system_that_was_asked(made: Any, lines: Any) -> None:
    world = made()
    question = {"sources": ["A.", "B."], "targets": ["C", "D"], "sentence": 1, "characters": [0, 1]}
    world.ask("POST", "/api/explain", json={"system": "window", **question})
    world.ask("POST", "/api/files", data={"system": "document"}, files={"file": ("a.txt", b"A.")})
    world.ask("POST", "/api/translate", json={"system": "sentence", "text": "was " * 2000})
    systems = [line["system"] for line in lines() if line["event"] == "request"]
    assert systems == ["window", "document", "sentence"]


def test_a_fault_in_mid_answer_cuts_it_off(made: Any, lines: Any) -> None:
    sent = sent_for(made().app, "/probe/stream")
    assert [m.get("more_body") for m in sent[1:]] == [True]  # never says that it is whole
    assert [line["event"] for line in lines()] == ["error", "request"]
    assert lines()[1]["status"] == 500


def test_an_error_for_the_user_is_one_for_the_client_without_paths(made: Any) -> None:
    answer = made().ask("POST", "/probe/cotext")
    assert answer.status_code == 400
    assert answer.json() == {"message": f"{SECRET}.yaml: cannot be read; see and/or /v2"}


@loop_over(
    ("method", "path", "status", "form"),
    [
        ("GET", "/probe/x", 405, "message"),
        ("POST", "/probe/x/y", 404, "message"),
        ("BREW", "/probe", 405, "message"),
        ("GET", "/health/", 404, "message"),
        ("GET", "/translate", 405, "error"),
        ("GET", "/session/s/detect", 405, "error"),
        ("GET", "/session", 404, "message"),
    ],
)
def test_what_is_not_there_is_told_in_the_form_of_the_api(
    made: Any, method: str, path: str, status: int, form: str
) -> None:
    answer = made().ask(method, path)
    assert answer.status_code == status
    assert list(answer.json()) == [form]


def test_paths_of_this_machine_are_taken_out() -> None:
    folders = {Path("/home/me/my runs/a"): "a", Path("runs/b"): "b"}
    assert without_paths("/home/me/my runs/a: no model", folders) == "a: no model"
    assert without_paths("runs/b/model.safetensors: no", folders) == "b/model.safetensors: no"
    assert without_paths("see '/var/lib/x/y.json'; /tmp/a/: 3", {}) == "see 'y.json'; ...: 3"
    kept = "km/h, and/or, </b>, https://example.org/a/b, /v2, 1/2/3"
    assert without_paths(kept, {}) == kept


# --- headers


def test_every_answer_has_safe_headers(made: Any) -> None:
    for path in ("/health", "/nothing", "/probe"):
        headers = made().ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers


# --- a browser on this machine


REFUSED: list[dict[str, str]] = [
    {"host": "evil.example:5000"},
    {"host": "127.0.0.1.evil.example"},
    {"host": "192.168.1.2:5000"},
    {"host": "[::1"},
    {"host": ""},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://localhost:8080"},
    {"origin": "http://["},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate"},
]
ANSWERED: list[dict[str, str]] = [
    {},
    {"host": "localhost:5000"},
    {"host": "LOCALHOST"},
    {"host": "127.0.0.2"},
    {"host": "[::1]:5000"},
    {"origin": "http://127.0.0.1:5000", "sec-fetch-site": "same-origin"},
    {"sec-fetch-site": "none"},
]


def test_only_programs_and_the_page_itself_may_ask_without_keys(made: Any) -> None:
    world = made()
    for headers in REFUSED:
        for method in ("GET", "POST", "OPTIONS"):
            answer = world.ask(method, "/probe", headers=headers)
            assert answer.status_code == 403, (method, headers)
            assert "access-control-allow-origin" not in answer.headers
    for headers in ANSWERED:
        assert world.ask("GET", "/probe", headers=headers).status_code == 200, headers
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert world.ask("GET", "/", headers=link).status_code != 403


def test_without_keys_other_addresses_are_not_answered(made: Any, tmp_path: Path) -> None:
    assert made().ask("GET", "/probe", base="http://192.168.1.2:5000").status_code == 403
    key = add_key(tmp_path / "keys", "desk")
    with_keys = made(keys=tmp_path / "keys")
    headers = {"x-key": key, "origin": "https://elsewhere.example"}
    assert with_keys.ask("GET", "/probe", base="http://192.168.1.2", headers=headers).status_code == 200


def test_origins_that_are_named_may_ask(made: Any) -> None:
    world = made(cors=("https://tool.example",))
    headers = {"origin": "https://tool.example", "sec-fetch-site": "cross-site"}
    answer = world.ask("GET", "/probe", headers=headers)
    assert answer.headers["access-control-allow-origin"] == "https://tool.example"
    asked = {**headers, "access-control-request-method": "POST"}
    assert world.ask("OPTIONS", "/probe", headers=asked).status_code == 200
    other = {"origin": "https://evil.example"}
    assert world.ask("GET", "/probe", headers=other).status_code == 403
    preflight = world.ask("OPTIONS", "/probe", headers={**other, "access-control-request-method": "POST"})
    assert "access-control-allow-origin" not in preflight.headers


# --- keys


def test_clients_have_their_keys(made: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    one, two = add_key(path, "weblate"), add_key(path, "omegat")
    assert path.stat().st_mode & 0o777 == 0o600
    assert one not in path.read_text()
    world = made(keys=path)
    assert world.ask("GET", "/probe", headers={"x-key": one}).json() == {"client": "weblate"}
    assert world.ask("GET", "/probe", headers={"x-key": two}).json() == {"client": "omegat"}
    for wrong in ("", one[:-1], one + "x", "weblate", "x" * 5000):
        answer = world.ask("GET", "/probe", headers={"x-key": wrong})
        assert answer.status_code == 403

    revoke_key(path, "weblate")  # while the server runs
    assert world.ask("GET", "/probe", headers={"x-key": one}).status_code == 403
    assert world.ask("GET", "/probe", headers={"x-key": two}).status_code == 200
    path.write_text("{")  # while it cannot be read, nobody has a key
    assert world.ask("GET", "/probe", headers={"x-key": two}).status_code == 403


def test_without_keys_each_is_a_client_of_its_own(made: Any) -> None:
    world = made()
    names = [world.ask("GET", "/probe", headers={"x-key": k}).json()["client"] for k in ("", "a", "b", "a")]
    assert names[0] == "anybody"
    assert names[1] == names[3] != names[2]


# --- limits


def test_who_has_waited_long_may_ask_no_more_at_once_than_in_a_minute() -> None:
    now = [0.0]
    rates = Rates(lambda: now[0])
    assert rates.seconds_to_wait("client", 2) == 0
    now[0] = 3600.0
    assert [rates.seconds_to_wait("client", 2) for _ in range(3)] == [0, 0, 30]


def test_more_than_a_minute_allows_waits(made: Any, tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    slow, quick = add_key(path, "slow", requests_per_minute=2), add_key(path, "quick")
    world = made(keys=path)
    asked = [world.ask("GET", "/probe", headers={"x-key": slow}) for _ in range(3)]
    assert [answer.status_code for answer in asked] == [200, 200, 429]
    assert 1 <= int(asked[-1].headers["retry-after"]) <= 30
    assert world.ask("GET", "/probe", headers={"x-key": quick}).status_code == 200


def test_places_are_taken_and_given_back(made: Any) -> None:
    world = made(max_waiting=3, max_waiting_of_client=2)

    async def at_once() -> list[int]:
        async with world.session() as session:
            first = asyncio.gather(*(session.get("/probe?wait=0.2") for _ in range(3)))
            await asyncio.sleep(0.1)
            others = (session.get("/probe?wait=0.1", headers={"x-key": "b"}) for _ in range(2))
            other = asyncio.gather(*others)
            await asyncio.sleep(0)
            return [answer.status_code for answer in await first + await other]

    assert sorted(asyncio.run(at_once())) == [200, 200, 200, 429, 503]
    assert world.app.state.admission.in_flight == 0
    assert asyncio.run(at_once()).count(200) == 3


def test_a_server_that_stops_takes_nothing_new(made: Any) -> None:
    world = made()
    world.app.state.admission.stopping = True
    answers = [world.ask("GET", path) for path in ("/probe", "/ready", "/health")]
    assert [each.status_code for each in answers] == [503, 503, 200]
    assert ["retry-after" in each.headers for each in answers] == [True, True, False]


# --- bodies

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}


@loop_over(
    ("content", "headers", "status"),
    [
        (b'{"q": "a"}', JSON, 200),
        (b'{"q": "a"}', {}, 200),
        (b"", JSON, 200),
        (b'{"q": NaN}', JSON, 400),
        (b'{"q": "\\ud800"}', JSON, 400),
        (b'{"q": "\xff"}', JSON, 400),
        (b'{"q": 1, "q": 2}', JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b'["q"]', JSON, 400),
        (b'{"q": "a"}', {"content-type": "text/plain"}, 415),
        (b'{"q": "a"}', {"content-type": "application/json; charset=utf-16"}, 415),
        (b"q=a&q=b", FORM, 200),
        (b"q=\xff", FORM, 400),
        (b"&".join([b"q="] * 3000), FORM, 413),
        (b"q=" + b"a" * 2_000_000, FORM, 413),
        (b'{"q": "' + b"a" * 2_000_000 + b'"}', JSON, 413),
        (b"q", {"content-type": "multipart/form-data"}, 400),
        (b"--x\r\n\r\n", {"content-type": "multipart/form-data; boundary=x"}, 400),
        (b"--x", {"content-type": "multipart/form-data; boundary=x; charset=punycode"}, 415),
    ],
)
def test_bodies(made: Any, content: bytes, headers: dict[str, str], status: int) -> None:
    answer = made().ask("POST", "/probe/fields", content=content, headers=headers)
    assert answer.status_code == status, answer.text


def test_forms_are_utf8_as_they_come(made: Any) -> None:
    answer = made().ask("POST", "/probe/fields", content="q=Zoë+%C3%AB&q=".encode(), headers=FORM)
    assert answer.json() == {"q": ["Zoë ë", ""]}


def test_a_body_without_a_declared_length_is_bounded_while_it_is_read(made: Any) -> None:
    async def endless() -> Any:
        for _ in range(1000):
            yield b" " * 65536

    assert made().ask("POST", "/probe/fields", content=endless(), headers=JSON).status_code == 413
    assert made().ask("POST", "/probe/fields", content=endless(), headers=FORM).status_code == 413


def test_a_body_that_does_not_come_is_not_waited_for(made: Any) -> None:
    begun = {"type": "http.request", "body": b"{", "more_body": True}
    assert sent_for(made(body_seconds=0.1).app, "/probe/fields", begun)[0]["status"] == 408


# --- mounted


def test_under_a_prefix_of_another_application(made: Any) -> None:
    """Handlers, errors in the form of the API, and the check of pages hold there too."""
    world = made()
    world.app = Starlette(routes=[Mount("/mt", app=world.app)])
    assert world.ask("GET", "/mt/probe").json() == {"client": "anybody"}
    assert list(world.ask("GET", "/mt/detect").json()) == ["error"]
    assert world.ask("GET", "/mt/").status_code == 200
    sent = world.ask("POST", "/mt/api/files", files={"file": ("a.txt", b"A.")})
    assert sent.headers["location"] == f"/mt/api/files/{sent.json()['id']}"
    assert world.ask("GET", "/mt/probe", headers={"host": "evil.example"}).status_code == 403
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert world.ask("GET", "/mt/", headers=link).status_code == 200
    assert world.ask("GET", "/mt/probe", headers=link).status_code == 403


def test_no_number_is_too_deep() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, {"a": deep}, 1.0, True, "-1", "1" * 10, None):
        with pytest.raises(RequestError, match="give a whole number"):
            whole_number(value, "alternatives")
    assert (whole_number("12", "x"), whole_number(3, "x")) == (12, 3)
