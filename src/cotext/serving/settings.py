"""What a server is told when it starts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cotext.runtime.errors import CotextError

BATCH_TOKENS: Final = 4096
SHARES: Final = 8  # a client may take one of so many parts of the space for files


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Limits and places of a server; sizes are bytes, times seconds.

    `state`: the folder of jobs, glossaries and usage, which a server that is started again goes on with.
    `keys`: the file of keys; None: any key is accepted, which is for the loopback alone.
    `batch_tokens`: what the hypotheses of a batch take at most, which bounds how long a batch takes.
    """

    state: Path
    keys: Path | None = None
    origins: tuple[str, ...] = ()  # that browsers may call from (CORS)
    batch_tokens: int = BATCH_TOKENS
    max_text_bytes: int = 128 * 1024
    max_file_bytes: int = 32 * 1024 * 1024
    max_sentences: int = 2_000  # of a request; files have none
    max_waiting: int = 256  # requests that wait or are worked at
    max_waiting_of_client: int = 64
    requests_per_minute: int = 0  # of a client; 0: any number
    request_seconds: float = 300.0
    max_characters_of_client: int = 10**12  # in all its requests in DeepL's dialect
    body_seconds: float = 30.0  # for a body, and as much again for every half MiB of it
    send_seconds: float = 60.0  # for a client to take a piece of an answer
    stop_seconds: float = 30.0  # for requests in flight when the server is asked to stop
    keep_jobs_seconds: float = 24 * 3600.0
    max_jobs_bytes: int = 4 << 30  # of all files together, finished or not; of a client an eighth
    files_at_once: int = 4
    page: bool = True

    def __post_init__(self) -> None:
        """Raise CotextError for limits that contradict each other."""
        if self.max_file_bytes * SHARES > self.max_jobs_bytes:
            raise CotextError(
                f"--max-file-bytes {self.max_file_bytes} does not go with --max-files-bytes "
                f"{self.max_jobs_bytes}: a client may have an eighth of all files together, and a file "
                f"cannot be larger; give --max-files-bytes {self.max_file_bytes * SHARES} at least"
            )

    @property
    def max_body_bytes(self) -> int:
        """Of a body that is no file: JSON and forms spend up to six bytes on one of text."""
        return 6 * self.max_text_bytes + 64 * 1024

    @property
    def max_upload_bytes(self) -> int:
        """Of a body with a file."""
        return self.max_file_bytes + self.max_body_bytes

    @property
    def max_fields(self) -> int:
        """Of a form: a text each, and what is said about them."""
        return self.max_sentences + 100
