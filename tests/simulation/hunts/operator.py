"""Mutants of the operator: of its writes, its reports, and the copies that it keeps."""

from __future__ import annotations

from simulation.planted import KUBE, TEST, Hunt, Mutant
from simulation.tested_mutants import LISTS, TAKE_OVER, WAITS

STARTS_FIRST = """\
            self.executor.start(plan.actions)
            await self.ledger.write(plan.ledger)
"""
READS_POD = """\
            found = records.answered(await self.api.get(paths.pod(entry.namespace, name)))
            self.pods.absorb(found)
            if found.uid == uid and not (found.node or found.deleting):
                raise  # Such as a scheduling gate that a webhook has set; or a webhook is down.
            return
"""
DROPS_MISSING = """\
        for held in self._missing_from(listing):
            self._put(held, None)
"""
REVOKES = """\
                self.sessions.revoke(uid, record.attempt)
                continue
"""
WAITS_FOR_STEP = """\
            if granted and held.get((group, attempt), -1) < step:
                continue
"""

HUNTS = (
    Hunt(
        Mutant(
            "the ledger is read in every cycle",
            "cycle.py",
            "elif plan.confirms or self.clock() - self._confirmed_s >= CONFIRM_INTERVAL_S:",
            "else:",
            TEST,
        ),
        "all",
        1000,
    ),
    Hunt(
        Mutant(
            "actions start before the ledger is written",
            "cycle.py",
            "            await self.ledger.write(plan.ledger)\n",
            STARTS_FIRST,
            TEST,
        ),
        "all",
        1000,
    ),
    Hunt(
        Mutant(
            "a conflict of the ledger is ignored",
            "write/ledger.py",
            'raise DeposedError(f"{there.holder} wrote the ledger in epoch {there.epoch}")',
            "pass",
            TEST,
        ),
        "all",
        1009,
    ),
    Hunt(
        Mutant(
            "launchers of a revoked attempt go on",
            "state_builder.py",
            REVOKES,
            "                continue\n",
            TEST,
        ),
        "all",
        1045,
    ),
    Hunt(
        Mutant(
            "the epoch is not raised by a take-over",
            "write/ledger.py",
            "await self.write(self.ledger.taken_over(self._holder))",
            "pass",
            TEST,
        ),
        "all",
        1000,
    ),
    Hunt(
        Mutant(
            "a conflict of a binding counts as bound",
            "write/executor.py",
            READS_POD,
            "            pass\n",
            TEST,
        ),
        "all",
        1000,
    ),
    Hunt(
        Mutant(
            "a status is written over any version",
            "report/reporter.py",
            'resource_version=metadata["resourceVersion"])',
            'resource_version="")',
            TEST,
        ),
        "all",
        1000,
    ),
    Hunt(
        Mutant("a list drops no record", "reflector.py", DROPS_MISSING, "", TEST, package=KUBE),
        "all",
        1009,
    ),
    Hunt(
        Mutant(
            "events of deletions are ignored",
            "reflector.py",
            "self._drop(self.projection.streamed(event.object).metadata)",
            "int(self.projection.streamed(event.object).metadata.resource_version)",
            TEST,
            package=KUBE,
        ),
        "replacements",
        1000,
    ),
    Hunt(
        Mutant(
            "commits are granted before they are recorded",
            "report/commits.py",
            WAITS_FOR_STEP,
            "",
            TEST,
        ),
        "checkpoints",
        1000,
    ),
    Hunt(
        Mutant(
            "step reports do not reach the plan",
            "liveness.py",
            "steps=None if launcher is None else steps_seen(launcher),",
            "steps=None,",
            TEST,
        ),
        "hangs",
        1003,
    ),
    Hunt(
        Mutant(
            "pods are bound under an epoch not read again",
            "cycle.py",
            "elif plan.confirms or self.clock()",
            "elif self.clock()",
            TEST,
        ),
        "leaders",
        1387,
    ),
    Hunt(
        Mutant(
            "a new leader lists before it takes over",
            "wiring.py",
            TAKE_OVER + LISTS + WAITS,
            LISTS + WAITS + TAKE_OVER,
            TEST,
        ),
        "leaders",
        1012,
    ),
    Hunt(
        Mutant(
            "a waiting job gets no reason",
            "report/reporter.py",
            "wait=plan.waits.get(cached.uid),",
            "wait=None,",
            TEST,
        ),
        "all",
        1003,
    ),
)
