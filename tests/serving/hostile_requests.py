"""Requests that no honest client sends: bodies, addresses, files, and what is no HTTP."""

import io
import json
import re
import zipfile
from pathlib import Path

# What no answer may contain.
CHECKOUT = re.escape(str(Path(__file__).parents[2]))
LEAKS = re.compile(rf"Traceback|{CHECKOUT}|/tmp/|/home/|site-packages|\.py\b|Exception\b|Error:")

ADDRESSES = (
    "/v2/translate",
    "/v2/document",
    "/v2/glossaries",
    "/translate",
    "/detect",
    "/api/translate",
    "/api/explain",
    "/api/files",
)
DEEP = b'{"text":' + b"[" * 3000 + b"]" * 3000 + b"}"
_JSON = (
    {"text": ["<a>" * 500 + "x" + "</a>" * 500], "target_lang": "DE", "tag_handling": "xml"},
    {
        **{"text": ["<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>"], "target_lang": "DE"},
        **{"tag_handling": "xml", "tag_handling_version": "v2"},
    },
    {"text": ["a"] * 3000, "target_lang": "DE"},
    {"q": "a. " * 1300, "source": "en", "target": "de"},
    {"q": ["a"], "source": "en", "target": "de", "alternatives": 10**9},
    {"system": "document", "sources": ["a"] * 100, "targets": ["b"], "sentence": -1, "characters": [9, 1]},
    {"system": "document", "sources": ["a"], "targets": ["b"], "sentence": 2**63, "characters": [-(2**70)]},
    {"system": None, "text": [], "glossary": [[1, None], "ab", {}]},
)
BODIES = (
    b"",
    b"{",
    b"\xff\xfe",
    b'{"text": NaN}',
    DEEP,
    b'{"text": "\\ud800", "target_lang": "DE"}',
    b'{"q": {"a": 1}, "source": 3, "target": []}',
    b'{"text": 1e400}',
    b'{"system": "window", "text": "\\u0000"}',
    b'{"text": ["a"], "text": ["b"], "target_lang": "DE"}',
    b"a" * 70_000,
    b'{"q":"' + b"\xf0\x9f\x98\x80" * 900 + b'"}',
    *(json.dumps(content).encode() for content in _JSON),
)
KINDS = (
    "application/json",
    "application/x-www-form-urlencoded",
    "text/plain",
    "multipart/form-data; boundary=b",
    "multipart/form-data",
    "application/json; charset=utf-7",
    "",
    "x" * 4000,
)
PATHS = (
    "/../../etc/passwd",
    "/page/..%2f..%2fapplication.py",
    "/page/%00",
    "/%ff",
    "//",
    "/api/files/../../x",
    "/v2/document/%2e%2e/result",
    "/session/" + "a" * 5000 + "/languages",
    "/v2/glossaries/' OR 1=1 --",
    "/api/files/\u202e/result",
    "/v2/languages?type=%ff%00",
    "/v2/languages?type=" + "x" * 9000,
    "/api/systems?" + "a&" * 5000,
)


RAW = (
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\n",
    b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400\r\n\r\n{",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /languages HTTP/1.0\r\n\r\n",
    b"GET /languages HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40,
)


def _uploads() -> tuple[tuple[str, bytes], ...]:
    """Names of files and what is in them."""
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", b"<Types/>" + b" " * 2**24)
        archive.writestr("word/document.xml", b"<a/>" + b" " * 2**24)
        archive.writestr("../../evil.txt", b"x")
    laughs = (
        '<!DOCTYPE l [<!ENTITY a "'
        + "a" * 99
        + '">'
        + "".join(f'<!ENTITY {b} "{f"&{a};" * 9}">' for a, b in zip("abcdefg", "bcdefgh", strict=True))
        + "]><l>&h;</l>"
    )
    return (
        ("a.docx", bomb.getvalue()),
        ("a.html", b"<p>" * 9000),
        ("a.xliff", laughs.encode()),
        ("a.tmx", laughs.encode()),
        ("../../../a.txt", b"A dog."),
        ("a\x00.txt", b"A dog."),
        ("a.srt", b"1\n00:00\n\xff"),
        ("", b""),
        ("a.json", b"[" * 60_000),
        ("a.md", b"[" * 20_000),
        ("a.po", b'msgid "a\nmsgstr'),
        ("a.png", b"\x89PNG"),
        ("a.txt", b"a " * 40_000),
        ("a.yaml", b"a: &a [*a, *a]"),
        ("CON.txt", b"\x00" * 5000),
    )


UPLOADS = _uploads()
