"""The failure policy of a TrainingJob: how many failures it may have in a window of time."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, model_validator

from railwright_api.schema import Part, Rule, rules

BACKOFF_LIMIT_MAX = 100
WINDOW_S_MIN = 60
WINDOW_S_MAX = 31_536_000
BACKOFF_S_MAX = 300
"""The longest wait between two attempts. In a shorter window a job that fails at once, again and
again, would never have more failures than it may."""

_WINDOW = Rule(
    f"self.windowSeconds >= {BACKOFF_S_MAX} * self.backoffLimit",
    f"windowSeconds is %d: expected at least %d, which is {BACKOFF_S_MAX} times the backoffLimit "
    f"of %d, as retries wait for up to {BACKOFF_S_MAX} seconds",
    seen=("self.windowSeconds", f"{BACKOFF_S_MAX} * self.backoffLimit", "self.backoffLimit"),
    field=".windowSeconds",
)


class FailurePolicy(Part):
    """How many failures of the job's own making are retried, such as a rank that exits with an
    error. Lost nodes and evictions are always retried and do not count."""

    model_config = ConfigDict(json_schema_extra=rules(_WINDOW))

    backoff_limit: Annotated[int, Field(ge=0, le=BACKOFF_LIMIT_MAX)] = 3
    """Number of failures in the window that are retried. With one more the job fails."""
    window_seconds: Annotated[int, Field(ge=WINDOW_S_MIN, le=WINDOW_S_MAX)] = 86_400
    """Length of the window, which ends with the newest failure. Earlier failures do not count. At
    least 300 for each failure of backoffLimit."""

    @model_validator(mode="after")
    def _is_reachable(self) -> FailurePolicy:
        least_s = BACKOFF_S_MAX * self.backoff_limit
        if self.window_seconds < least_s:
            counts = (self.window_seconds, least_s, self.backoff_limit)
            raise ValueError(_WINDOW.message % counts)
        return self
