"""A server on this machine that speaks as much of the Hugging Face hub's protocol as its client needs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".bin")  # kept in git as pointers: their checksum is SHA-256


class LocalHub:
    """Repositories by name, each a folder; `asked`: the paths of requests; `damaged`: files sent wrongly."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}
        self.licences: dict[str, str] = {}
        self.asked: list[str] = []
        self.damaged: set[str] = set()
        self.endpoint = ""

    def entries(self, folder: Path) -> list[dict[str, Any]]:
        """The files of a repository, as the hub lists them."""
        found = []
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            content = path.read_bytes()
            entry: dict[str, Any] = {
                "type": "file",
                "path": path.relative_to(folder).as_posix(),
                "rfilename": path.relative_to(folder).as_posix(),
                "size": len(content),
                "oid": sha1(b"blob %d\0" % len(content) + content).hexdigest(),
            }
            entry["blobId"] = entry["oid"]
            if path.suffix in LARGE:
                digest = sha256(content).hexdigest()
                entry["lfs"] = {"oid": digest, "sha256": digest, "size": len(content), "pointerSize": 130}
            found.append(entry)
        return found

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer to a request."""
        self.asked.append(path)
        parts = unquote(urlsplit(path).path).strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if is_api else parts[:2])
        folder = self.folders.get(name)
        if folder is None:
            return 404, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"{}"
        if is_api and parts[4:5] == ["tree"]:
            return 200, {}, json.dumps(self.entries(folder)).encode()
        if is_api:
            card = {"license": self.licences[name]} if name in self.licences else {}
            about = {"id": name, "modelId": name, "sha": COMMIT, "siblings": self.entries(folder)}
            return 200, {}, json.dumps({**about, "cardData": card, "private": False, "tags": []}).encode()
        file = "/".join(parts[4:])
        [entry] = [each for each in self.entries(folder) if each["path"] == file]
        content = (folder / file).read_bytes()
        if file in self.damaged:
            content = bytes(reversed(content))
        etag = entry.get("lfs", {}).get("sha256") or entry["oid"]
        return 200, {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"', "Accept-Ranges": "bytes"}, content


@contextmanager
def serving() -> Iterator[LocalHub]:
    hub = LocalHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = hub.answer(self.path)
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
