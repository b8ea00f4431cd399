"""Why a command cannot do what it was asked for. All of them end it with EXIT_NOT_DONE."""

from __future__ import annotations

EXIT_NEGATIVE = 1
"""With `--watch` or `--follow`: the job failed or was deleted. `doctor`: a check failed. With
`submit --dry-run`: a job can never start as it is. The reader of a pipe is gone."""

EXIT_NOT_DONE = 2
"""The command was not carried out, or not all of it, for the reason on stderr."""


class CommandError(Exception):
    """The message is for the user."""


class UsageError(CommandError, ValueError):
    """An argument, or what a file holds, has no meaning here."""


class RequestError(CommandError):
    """The API server refused a request: the code of its response, and its message. The code is 0 if
    there was no response. ``is_absence``: the object does not exist."""

    def __init__(self, code: int, message: str, *, is_absence: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_absence = is_absence

    @property
    def is_temporary(self) -> bool:
        """Whether the same request can succeed later."""
        return self.code in (0, 404, 410, 429) or self.code >= 500


class AccessDeniedError(RequestError):
    """The user has no right to make the request."""
