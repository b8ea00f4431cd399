"""The ledger and a status accept the cause of any text of ranks and kubelets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from railwright import protocol
from railwright_api.ledger import EntryCause
from railwright_api.training_job_status import Termination
from railwright_operator.watch import causes
from railwright_scheduler.attempt import assessment
from railwright_scheduler.attempt.assessment import Ended
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.model.evidence import Crash, ObservedRank, PodState

MESSAGE_LENGTH_MAX = 1024
LAST_LINES_LENGTH_MAX = 512

# Surrogates and control characters too; and what is long, which Hypothesis does not try by itself.
NASTY = st.builds(
    lambda text, times: text * times, st.text(st.characters()), st.sampled_from((1, 1, 600))
)
AGES = st.sampled_from((0.0, 9.0, 30.0, 1e9))
CRASHES = st.builds(
    Crash,
    st.integers(0, protocol.RANKS_MAX - 1),
    st.integers(-(2**31), 2**31 - 1),
    AGES,
    st.none() | NASTY,
    NASTY,
    NASTY,
    st.booleans(),
)
RANKS = st.builds(
    ObservedRank,
    st.integers(0, protocol.NODES_MAX - 1),
    st.sampled_from(("n0", "n" * 253)),
    st.sampled_from(PodState),
    deleting=st.booleans(),
    crash=st.none() | CRASHES,
    silent_s=st.none() | AGES,
    lease_stale=st.booleans(),
    unready_s=st.none() | AGES,
    waiting=NASTY,
    evicted=st.just("") | NASTY,
)


def written(cause: Cause) -> None:
    """As the ledger and a status would take it; and bytes are what goes over the wire."""
    fields = causes.render(cause)
    EntryCause.model_validate(fields)
    code = fields.pop("code")
    Termination.model_validate({**fields, "cause": code, "attempt": 1})
    assert len(cause.message) <= MESSAGE_LENGTH_MAX
    assert len(cause.last_lines) <= LAST_LINES_LENGTH_MAX
    assert causes.parse({**fields, "code": code}) == cause
    for text in (cause.message, cause.signal or "", cause.last_lines):
        text.encode()


@given(st.lists(RANKS, min_size=1, max_size=3), st.booleans())
def test_any_cause_can_be_written(ranks: list[ObservedRank], started: bool) -> None:
    verdict = assessment.assess(ranks, started=started, age_s=1e6)
    if isinstance(verdict, Ended):
        written(verdict.cause)


@given(CRASHES)
def test_any_crash_can_be_written(crash: Crash) -> None:
    ranks = (ObservedRank(0, "n0", PodState.RUNNING, crash=crash),)
    verdict = assessment.assess(ranks, started=True, age_s=1.0)
    if isinstance(verdict, Ended):
        assert verdict.cause.code in (CauseCode.RANK_FAILED, CauseCode.OUT_OF_MEMORY)
        written(verdict.cause)
