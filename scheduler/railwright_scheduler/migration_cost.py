"""The seconds that a migration of a running job saves, and those that it costs.

A migration that pays waits for a checkpoint, while waiting costs less than the work that would be
done again. Both grow; if a step takes more than twice as long as it would, waiting costs more.
"""

from __future__ import annotations

from dataclasses import dataclass

RESTART_S = 180.0
"""Assumed cost of a start: pods are replaced, ranks connect and load their checkpoint."""

PAYS = 2.0
"""A move must save so many times what it costs: steps are predicted, not known."""

WORTH = 0.95
"""And a step must be so much shorter."""

RECENT_S = 30.0
"""So much work may be lost without waiting for another checkpoint."""


@dataclass(frozen=True, slots=True)
class MigrationCost:
    """Seconds of a step now and after the migration, the steps that are left, and the steps since
    the last checkpoint."""

    now_s: float
    then_s: float
    left: float
    since: int

    @property
    def saved_s(self) -> float:
        """Seconds by which the rest of the job becomes shorter."""
        return self.left * (self.now_s - self.then_s)

    @property
    def again_s(self) -> float:
        """Seconds to repeat the steps since the last checkpoint."""
        return self.since * self.then_s

    @property
    def cost_s(self) -> float:
        """Seconds that a migration costs now."""
        return RESTART_S + self.again_s

    @property
    def gain_s(self) -> float:
        """Seconds saved by a migration now, less its cost."""
        return self.saved_s - self.cost_s

    @property
    def pays_at_best(self) -> bool:
        """Whether a migration would pay right after a checkpoint."""
        return self.then_s <= WORTH * self.now_s and self.saved_s > PAYS * RESTART_S

    @property
    def pays(self) -> bool:
        """Whether a migration pays now."""
        return self.pays_at_best and self.saved_s > PAYS * self.cost_s

    def is_timely(self, waited_s: float) -> bool:
        """Whether waiting for a checkpoint has cost as much by now as the work that is lost."""
        return self.again_s <= max(RECENT_S, waited_s * (1.0 - self.then_s / self.now_s))
