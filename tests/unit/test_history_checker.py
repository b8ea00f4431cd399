"""The checker of histories finds each invariant that a made-up history breaks, and only that."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fixtures.planted import PODS, Planted
from history import writes
from history.checker import HistoryChecker
from history.rest import check_rest
from history.trail import Violation
from railwright_testbed import audit
from railwright_testbed.audit import Request

START = """
node n0 8
node n1 8
node n2 8
job a Queued
ledger 1 me
"""
COMMITTED = (
    START
    + """
ledger 1 me a-1=n0,n1
place a-1
make a-1-0
make a-1-1
bind a-1-0 n0
"""
)
RUNNING = (
    COMMITTED
    + """
bind a-1-1 n1
job a Starting 1/0
ledger 1 me
job a Running 1/0
"""
)
REVOKED = (
    RUNNING
    + """
ledger 1 me a-1!n0,n1
take a-1-0
take a-1-1
job a Recovering 1/1 failures=1 restarts=1
"""
)
AGAIN = (
    REVOKED
    + """
gone a-1-0
gone a-1-1
ledger 1 me
ledger 1 me a-2=n1,n2
make a-2-0
make a-2-1
bind a-2-0 n1
bind a-2-1 n2
job a Starting 2/1 failures=1 restarts=1
ledger 1 me
"""
)
ENDED = (
    AGAIN
    + """
job a Running 2/1 failures=1 restarts=1
end a-2-0
end a-2-1
job a Succeeded 2/2 failures=1 restarts=1
"""
)


def numbers(name: str) -> set[str]:
    """The invariants that a case is named after."""
    return set(re.findall(r"\bI\d+\b", name))


def check_history(text: str, *, rested: bool = False) -> list[Violation]:
    """What is found in a history; with ``rested``, also at its end."""
    planted = Planted(text)
    checker = HistoryChecker(planted.deletes)
    checker.read(planted.revisions)
    if rested:
        check_rest(checker)
    return checker.trail.violations


@pytest.mark.parametrize("text", [START, AGAIN, ENDED], ids=["waits", "again", "ended"])
def test_a_sound_history_is_sound_to_its_end(text: str) -> None:
    assert check_history(text, rested=True) == []


BREAKS = {
    "I1 a node given twice by two commits": START + "ledger 1 me a-1=n0,n1 b-1=n1,n2",
    "I1 a gang on a node that a stranger has filled": """
        node n0 8
        guest g n0 1
        wait 6
        ledger 1 me a-1=n0
        """,
    "I1 a gang on a node that shrank long ago": """
        node n0 8
        node n0 4
        wait 6
        ledger 1 me a-1=n0
        """,
    "I1 a binding to a node that went long ago": COMMITTED + "node n1 gone\nwait 6\nbind a-1-1 n1",
    "I2 half a gang whose attempt left the ledger": COMMITTED + "ledger 1 me",
    "I2 half a gang for more than a minute": COMMITTED + "wait 61",
    "I3 two attempts alive, the old one not told to go": "node n2 16\n"
    + RUNNING.replace("node n2 8", "")
    + """
        ledger 1 me a-1!n0,n1
        ledger 1 me a-1!n0,n1 a-2=n2,n2
        make a-2-0
        bind a-2-0 n2
        """,
    "I4 two pods of one rank": """
        node n0 24
        ledger 1 me a-1=n0,n0
        make a-1-0
        bind a-1-0 n0
        make a-1-00
        bind a-1-00 n0
        """,
    "I4 a job that runs and was never whole": COMMITTED + "job a Running 1/0",
    "I6 a job that ended and goes on": ENDED + "job a Queued 2/2 failures=1 restarts=1",
    "I7 a record that goes back": REVOKED + "job a Recovering 1/0 failures=1 restarts=1",
    "I7 more failures than attempts that failed": REVOKED + "job a Recovering 1/1 failures=2",
    "I14 I2 a binding without an entry": START + "make a-1-0\nbind a-1-0 n0",
    "I14 a binding to another node than planned": COMMITTED + "bind a-1-1 n2",
    "I14 an epoch that goes back": START + "ledger 2 you\nledger 1 me",
    "I14 a leader that writes after the next one": START + "ledger 2 you\nledger 2 me",
    "I14 a ledger that is deleted": START + "ledger gone",
    "I14 a binding long after the abort": COMMITTED
    + "ledger 1 me a-1!n0,n1\nwait 13\nbind a-1-1 n1",
    "I15 a delete before its abort": RUNNING + "take a-1-0",
    "I20 a status that is written for its times alone": RUNNING + "wait 3\njob a Running 1/0",
    "I24 a job that fails for a lost node": REVOKED
    + "job a Failed 1/1 failures=1 restarts=1 !NodeLost",
    "I24 a job that fails before its budget is spent": REVOKED
    + "job a Failed 1/1 failures=1 restarts=1 !RankFailed",
    "I25 a job that fails at a deadline and has none": REVOKED
    + "job a Failed 1/1 failures=1 restarts=1 !DeadlineExceeded",
    "I26 a commit of a revoked attempt": REVOKED
    + "job a Recovering 1/1 failures=1 restarts=1 worker:1:40",
    "I26 a Placement of what was never committed": REVOKED
    + "gone a-1-0\ngone a-1-1\nledger 1 me\nledger 1 me a-2=n1,n2\nplace a-2 worker:1:40",
    "I20 a write at rest": ENDED + 'note {"note": "rest"}\nledger 2 me',
    "I20 a Fabric that changes at rest": 'fabric 3 0\nnote {"note": "rest"}\nfabric 2 1 7',
    "I20 a Fabric written again at rest": 'fabric 3 0\nnote {"note": "rest"}\nfabric 3 0',
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_breaks_an_invariant_is_found_under_its_number(name: str) -> None:
    found = check_history(BREAKS[name])
    assert {violation.invariant for violation in found} == numbers(name), found


NOT_OURS = {
    "agents that time alone makes silent": 'fabric 3 0\nnote {"note": "rest"}\nfabric 2 1',
    "a Fabric that was checked again": 'fabric 3 0\nnote {"note": "rest"}\nfabric 3 0 8 later',
    "a stranger's pod on a node of a gang that is being bound": COMMITTED
    + "guest g n1 8\nbind a-1-1 n1",
    "a node that shrinks under a gang": RUNNING + "node n0 4",
    "a node that goes while its pod is being bound": COMMITTED + "node n1 gone\nbind a-1-1 n1",
    "a stranger's pod that ended": "guest g n0 8\nwait 6\nend g\n" + COMMITTED,
    "a pod that a stranger deletes": RUNNING + "lose a-1-0",
    "a binding that was under way when its attempt was aborted": COMMITTED
    + "ledger 1 me a-1!n0,n1\nbind a-1-1 n1",
    "an old attempt on a dead node that was told to go": REVOKED
    + """
        gone a-1-1
        ledger 1 me a-1!n0,n1 a-2=n1,n2
        make a-2-0
        bind a-2-0 n1
        """,
}


@pytest.mark.parametrize("name", NOT_OURS)
def test_history_checker_ignores_foreign_writes(name: str) -> None:
    assert check_history(NOT_OURS[name]) == []


UNSETTLED = {
    "I5 an attempt that stays in flight": COMMITTED,
    "I5 a job whose pod went and that nobody judged": RUNNING + "lose a-1-0\ngone a-1-0",
    "I12 pods without their job": RUNNING + "job a gone",
    "I12 a Placement without its job": START + "place b-1",
    "I5 I12 pods of an attempt that is over": RUNNING + "job a Running 1/1",
    "I13 a pod that is never let go": RUNNING + "lose a-1-0",
}


@pytest.mark.parametrize("name", UNSETTLED)
def test_history_checker_reports_unsettled_state(name: str) -> None:
    found = check_history(UNSETTLED[name], rested=True)
    assert {violation.invariant for violation in found} == numbers(name), found


DELETED = '{"note": "begin", "invariants": ["I14"], "because": "an admin deletes the ledger"}'
OVER = DELETED.replace("begin", "end")


def test_a_test_may_declare_what_it_breaks_and_nothing_else() -> None:
    declared = f"{START}note {DELETED}\nledger gone\nledger 1 you\nnote {OVER}\n"
    assert check_history(declared) == []
    other = declared.replace("ledger gone", "make a-1-0\nbind a-1-0 n0\nledger gone")
    assert [violation.invariant for violation in check_history(other)] == ["I2"]
    assert [violation.invariant for violation in check_history(declared + "ledger 0 me")] == ["I14"]


def test_a_declaration_that_nothing_needs_is_found() -> None:
    (found,) = check_history(f"{START}note {DELETED}\nnote {OVER}")
    assert (
        found.finding == "declared: 'an admin deletes the ledger' broke none of ['I14']: remove it"
    )


def test_violation_is_reported_with_revision_and_context() -> None:
    """The report lists the writes around the violation."""
    (found,) = check_history(COMMITTED + "ledger 1 me\nbind a-1-1 n1")[:1]
    assert (found.revision, found.key.rpartition("/")[2]) == (11, "default")
    comparable_status = str(found)
    assert comparable_status.startswith(
        "I2: a-1-0 runs, its gang was never whole and is not in the ledger"
    )
    assert "10 08:00:00 pods/team/a-1-0 is bound to n0" in comparable_status
    assert "11 08:00:00 ledgers/default holds epoch 1 of me: nothing in flight" in comparable_status
    assert "12 08:00:00 pods/team/a-1-1 is bound to n1" in comparable_status


def asked(verb: str, name: str, *, user: str = audit.OPERATOR, **changes: Any) -> Request:
    """One request for a pod that landed."""
    plain = Request(
        user=user,
        verb=verb,
        group="",
        resource="pods",
        subresource="",
        namespace="team",
        name=name,
        code=200,
        received="2027-01-15T08:00:00.000000Z",
        revision=None,
        path=f"/api/v1/namespaces/team/pods/{name}",
    )
    return replace(plain, **changes)


def test_delete_is_the_operators_without_another_author() -> None:
    """A delete without another user's audit record is the operator's."""
    done = writes.writes(
        [
            asked("delete", "a-1-0", revision=7),
            asked("delete", "a-1-1", revision=8),
            asked("delete", "a-1-1", user="a person", revision=8),
            asked("delete", "a-1-2", code=404),
        ]
    )
    assert done.deletes == {(f"{PODS}a-1-0", 7)}


def test_late_delete_without_effect_is_no_violation() -> None:
    """A delete of the operator that changed nothing is not checked."""
    planted = Planted(RUNNING + "lose a-1-0")
    bound = next(r.number for r in planted.revisions if "nodeName" in str(r.changes))
    checker = HistoryChecker({(f"{PODS}a-1-0", bound)})
    assert checker.read(planted.revisions) == []


def test_more_writes_of_a_pod_than_make_bind_delete_are_found() -> None:
    life = [asked("create", "a-1-0"), asked("create", "a-1-0", subresource="binding")]
    life += [asked("delete", "a-1-0", revision=7)] * 2
    attempts = {f"{PODS}a-1-0": {("a", 1)}}
    assert list(writes.too_many(writes.writes(life), attempts)) == []
    again = writes.writes([*life, asked("create", "a-1-0")])
    assert list(writes.too_many(again, attempts)) == [
        f"I20: {PODS}a-1-0 was written 4 times for 1 attempts"
    ]
    assert list(writes.too_many(again, {f"{PODS}a-1-0": {("a", 1), ("b", 1)}})) == []


def test_operator_requests_at_rest_are_found() -> None:
    moment = datetime(2027, 1, 15, 7, 59, tzinfo=UTC)
    patch = asked("patch", "a", resource="trainingjobs", subresource="status")
    quiet = [asked("update", "lease", resource="leases"), asked("list", "")]
    assert list(writes.after(quiet, moment)) == []
    assert list(writes.after([*quiet, patch], moment)) == [
        "I20: at rest the operator asks to patch trainingjobs"
    ]
    assert list(writes.after([patch], moment + timedelta(minutes=2))) == []
    theirs = replace(patch, user=audit.CONTROLLERS, resource="nodehealths")
    assert list(writes.after([theirs], moment)) == [
        "I20: at rest the controllers ask to patch nodehealths"
    ]
