"""What a client is told when a request cannot be answered; every dialect writes it in its own form."""


class RequestError(Exception):
    """A request that is refused: an HTTP status, and what is wrong and what to do, for the client's eyes.

    The message never has a path of this machine, nor text of another client. `retry_after`: seconds.
    """

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.retry_after = status, message, retry_after
