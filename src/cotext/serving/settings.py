"""Settings of a server."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cotext.data.documents import Languages, language_code
from cotext.runtime import CotextError, shown
from cotext.runtime.files import standard_folder
from cotext.runtime.request import Request, option
from cotext.translation.requests import Device

BATCH_TOKENS: Final = 4096
SHARES: Final = 8  # a client may use 1/SHARES of the space for files
NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"  # of systems and clients


def check_name(name: str, owner: str) -> None:
    """Raise CotextError if a name is invalid; `owner`: "client" or "system"."""
    if not re.fullmatch(NAME, name):
        raise CotextError(
            f"{shown(name)} cannot be the name of a {owner}: use up to 64 letters, digits, dots, hyphens and "
            "underscores, beginning with a letter or digit"
        )


class ServerSettings(Request):
    """Limits and folders of a server; sizes in bytes, times in seconds."""

    state: Path = option(
        "Folder for files and glossaries, which are kept when the server stops. Default: "
        "$XDG_STATE_HOME/cotext/serve-PORT, with ~/.local/state if that variable is not set.",
        default=Path("cotext-serve"),
    )
    keys: Path | None = option(
        "File of API keys, made by `cotext serve-key`; without it, only this machine may use the server.",
        default=None,
    )
    cors: Sequence[str] = option(
        "Web origin whose pages may send requests, such as https://example.org; may be repeated.", default=()
    )
    batch_tokens: int = option(
        "Maximum size of a batch, in tokens; clients share batches.", default=BATCH_TOKENS, least=1
    )
    max_text_bytes: int = option(
        "Maximum size of the texts of one request, in bytes.", default=128 * 1024, least=1
    )
    max_file_bytes: int = option("Maximum size of a file, in bytes.", default=32 * 1024 * 1024, least=1)
    max_sentences: int = option(
        "Maximum number of sentences in one request (not for files).", default=2_000, least=1
    )
    max_waiting: int = option(
        "Maximum number of requests at a time, and of unfinished files, of all clients.", default=256, least=1
    )
    max_waiting_of_client: int = option(
        "Maximum number of requests at a time, and of unfinished files, of a client.", default=64, least=1
    )
    requests_per_minute: int = option(
        "Maximum number of requests per minute and client; 0: no limit.", default=0, least=0
    )
    keep_files_hours: float = option("Hours for which a translated file is kept.", default=24.0, least=0.01)
    max_jobs_bytes: int = option(
        "Maximum total size of all files, in bytes; one client may use an eighth of it.",
        name="max_files_bytes",
        default=4 << 30,
        least=1,
    )
    files_at_once: int = option("Number of files translated at the same time.", default=4, least=1)
    page: bool = option("Serve the web page.", default=True)
    request_seconds: float = 300.0
    body_seconds: float = 30.0  # for a body, and again for every 512 KiB of it
    send_seconds: float = 60.0  # for a client to read a part of a response
    stop_seconds: float = 30.0  # for requests in progress when the server stops

    def check(self) -> None:
        """Raise CotextError for contradictory limits and invalid web origins."""
        for origin in self.cors:
            scheme, _, rest = origin.partition("://")
            if not scheme or not rest or "/" in rest or "*" in rest:
                raise CotextError(f"--cors {origin}: give an origin, such as https://example.org")
        if self.max_file_bytes * SHARES > self.max_jobs_bytes:
            raise CotextError(
                f"--max-file-bytes {self.max_file_bytes} is too large: a client, and thus a file, may use an "
                f"eighth of --max-files-bytes {self.max_jobs_bytes}; give at least --max-files-bytes "
                f"{self.max_file_bytes * SHARES}"
            )

    @property
    def origins(self) -> tuple[str, ...]:
        """The web origins that browsers may call from (CORS)."""
        return tuple(origin.lower() for origin in self.cors)

    @property
    def max_body_bytes(self) -> int:
        """Limit of a body without a file: JSON and forms use up to six bytes for one of text."""
        return 6 * self.max_text_bytes + 64 * 1024


class ServeRequest(ServerSettings, Device):
    """Runs to serve, and the address."""

    runs: Sequence[str] = option(
        "Run or engine folders, or names of models; written FOLDER or NAME=FOLDER. The first of each "
        "language pair answers requests without the name of a system.",
        argument=True,
    )
    host: str = option("Address to listen on. Default: for this machine only.", default="127.0.0.1")
    port: int = option("Port to listen on; 0: any free port.", default=5000)
    languages: str | None = option(
        "Language pair, such as en-de, of runs without a recorded language pair.", default=None
    )
    threads: int | None = option("CPU threads to use.", default=None, least=1)

    def folder_at(self, port: int) -> Path:
        if self.is_given("state"):
            return self.state
        return standard_folder("XDG_STATE_HOME", ".local/state") / f"serve-{port}"

    def pair(self) -> Languages | None:
        """Return the language pair of runs without a recorded language pair."""
        if self.languages is None:
            return None
        source, _, target = self.languages.partition("-")
        return Languages(language_code(source, "--languages"), language_code(target, "--languages"))
