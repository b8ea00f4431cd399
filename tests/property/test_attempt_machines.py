"""The small machines of an attempt, whatever they are shown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from fixtures import GPU
from fixtures.attempts import SUSPENDED, entry
from railwright_scheduler.attempt import assessment, gang, record
from railwright_scheduler.attempt.assessment import REMOVAL_S, VERDICT_S, Ended
from railwright_scheduler.attempt.causes import FINAL_CAUSES, HANGS_FREE, Cause, CauseCode
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.gang import BindPod, CreatePod, DeletePod, ObservedGang, Pod
from railwright_scheduler.attempt.ledger import Entry, EntryState
from railwright_scheduler.attempt.phases import EDGES, FINAL, Phase, move
from railwright_scheduler.attempt.record import BACKOFF_S_MAX, JobRecord
from railwright_scheduler.model.evidence import SILENT_S, Crash, ObservedRank, PodState

CAUSES = st.builds(Cause, st.sampled_from(CauseCode), st.just("why"))
AGES = st.sampled_from((0.0, 1.0, SILENT_S, 7.0, VERDICT_S, 26.0, 700.0))


@st.composite
def gangs(draw: DrawFn) -> tuple[Entry, ObservedGang]:
    """An attempt of three nodes at most, and anything that may be seen of it."""
    nodes = ("n0", "n1", "n2")[: draw(st.integers(1, 3))]
    cause = draw(st.none() | CAUSES)
    pods = [
        Pod(
            name=f"a-1-{rank}",
            uid=f"u{rank}",
            node_rank=rank,
            node=draw(st.sampled_from((node, node, "", "elsewhere"))),
            terminal=draw(st.booleans()),
            deleting=draw(st.booleans()),
            amounts=draw(st.sampled_from(({GPU: 8}, {GPU: 8}, {GPU: 9}))),
        )
        for rank, node in enumerate(nodes)
        if draw(st.integers(0, 3))
    ]
    seen = ObservedGang(
        pods=tuple(pods),
        placed=draw(st.booleans()),
        stop=draw(st.sampled_from((None, None, SUSPENDED))),
        refusal=draw(st.sampled_from((None, None, "quota"))),
        invalid_nodes=dict.fromkeys(draw(st.sets(st.sampled_from(nodes), max_size=1)), "went"),
        broken_topology=draw(st.sampled_from(("", "", "its nodes stand apart"))),
        stalled_s=draw(AGES),
        recorded_attempt=draw(st.integers(0, 1)),
        recorded_end=draw(st.integers(0, 1)),
    )
    return entry(nodes=nodes, cause=cause, state=_state(cause)), seen


def _state(cause: Cause | None) -> EntryState:
    return EntryState.COMMITTING if cause is None else EntryState.ABORTING


@given(gangs())
def test_a_step_changes_the_entry_or_acts_and_never_both(case: tuple[Entry, ObservedGang]) -> None:
    written, seen = case
    step = gang.step(written, seen)
    assert step.entry == written or not step.actions


@given(gangs())
def test_committing_gang_loses_no_pod_and_aborting_gets_none(
    case: tuple[Entry, ObservedGang],
) -> None:
    """Over all steps: no delete while committing, and no create or bind while aborting."""
    written, seen = case
    kinds = {type(action) for action in gang.step(written, seen).actions}
    if written.state is EntryState.COMMITTING:
        assert DeletePod not in kinds
    else:
        assert kinds <= {DeletePod}


@given(gangs())
def test_nothing_is_bound_before_all_are_made(case: tuple[Entry, ObservedGang]) -> None:
    written, seen = case
    actions = gang.step(written, seen).actions
    if any(isinstance(action, BindPod) for action in actions):
        assert {pod.node_rank for pod in seen.pods} == set(range(len(written.nodes)))
        assert not any(isinstance(action, CreatePod) for action in actions)


@given(gangs())
def test_an_abort_is_final_and_leaves_no_live_pod_behind(case: tuple[Entry, ObservedGang]) -> None:
    written, seen = case
    step = gang.step(written, seen)
    if written.state is EntryState.ABORTING:
        assert step.entry in (written, None)
        if step.entry is None:
            assert all(pod.terminal for pod in seen.pods)
            assert seen.recorded_end >= written.attempt


@given(gangs())
def test_a_changed_entry_is_stepped_to_rest_in_one_more_step(
    case: tuple[Entry, ObservedGang],
) -> None:
    written, seen = case
    first = gang.step(written, seen)
    if first.entry is not None:
        assert gang.step(first.entry, seen).entry in (first.entry, None)


@st.composite
def histories(draw: DrawFn) -> list[Entry]:
    """All attempts that a job ever had, the oldest first, in their last state."""
    causes = draw(st.lists(CAUSES, max_size=6))
    entries = [entry(n, cause=cause) for n, cause in enumerate(causes, start=1)]
    if draw(st.booleans()):
        entries.append(entry(len(entries) + 1))
    return entries


@given(histories(), st.integers(0, 4), st.data())
def test_an_attempt_is_counted_once_however_often_it_is_seen(
    history: list[Entry], limit: int, data: st.DataObject
) -> None:
    now = JobRecord()
    for i, written in enumerate(history):
        if now.phase in FINAL:
            break
        # A leader may see it committing first, and any entry that is still there again.
        if data.draw(st.booleans()):
            now = record.fold(now, [entry(written.attempt)], FailurePolicy(limit, 86_400))
        again = history[data.draw(st.integers(0, i)) : i + 1]
        now = record.fold(now, again, FailurePolicy(limit, 86_400))
        assert record.fold(now, history[: i + 1], FailurePolicy(limit, 86_400)) == now
    ended = [e.cause for e in history[: now.ended] if e.cause is not None]
    hangs = sum(cause.code is CauseCode.HUNG for cause in ended)
    assert now.failures == sum(cause.counted for cause in ended) + max(0, hangs - HANGS_FREE)
    assert now.failures <= limit + 1
    assert now.restarts <= len(ended)
    is_final = now.last_termination is not None and now.last_termination.code in FINAL_CAUSES
    assert (now.phase is Phase.FAILED) == (now.failures == limit + 1 or is_final)


@given(st.integers(0, 10_000), st.none() | CAUSES)
def test_a_backoff_is_bounded_and_never_falls_with_more_failures(
    failures: int, cause: Cause | None
) -> None:
    shorter = JobRecord(failures=failures, last_termination=cause).backoff_s
    longer = JobRecord(failures=failures + 1, last_termination=cause).backoff_s
    assert 0 <= shorter <= longer <= BACKOFF_S_MAX


@given(st.sampled_from(Phase), st.sampled_from(Phase))
def test_only_ways_of_the_table_are_open(source: Phase, target: Phase) -> None:
    legal = source is target or (source, target) in EDGES
    assert not (source in FINAL and legal and source is not target)
    try:
        assert move(source, target) is target
    except AssertionError:
        assert not legal


RANKS = st.builds(
    ObservedRank,
    node_rank=st.integers(0, 3),
    node=st.sampled_from(("n0", "n1", "n2")),
    pod=st.sampled_from(PodState),
    deleting=st.booleans(),
    done=st.booleans(),
    crash=st.none() | st.builds(Crash, st.integers(0, 7), st.sampled_from((1, 137, 143)), AGES),
    silent_s=st.none() | AGES,
    lease_stale=st.booleans(),
    node_gone=st.booleans(),
    unready_s=st.none() | AGES,
    evicted=st.sampled_from(("", "", "taint")),
)
ATTEMPTS = st.lists(RANKS, min_size=1, max_size=4)
USERS = (CauseCode.RANK_FAILED, CauseCode.OUT_OF_MEMORY)


@given(ATTEMPTS, st.booleans(), AGES)
def test_no_rank_is_blamed_while_a_node_may_be_dying(
    ranks: list[ObservedRank], started: bool, age_s: float
) -> None:
    verdict = assessment.assess(ranks, started=started, age_s=age_s)
    if not (isinstance(verdict, Ended) and verdict.cause.code in USERS):
        return
    crashed_s = max(rank.crash.age_s for rank in ranks if rank.crash and not is_well(rank))
    for rank in ranks:
        ended = rank.done or rank.crash or rank.pod in (PodState.SUCCEEDED, PodState.FAILED)
        if ended or rank.silent_s is None:
            continue
        heard_since = rank.silent_s <= min(crashed_s, SILENT_S)
        kubelet_silent = rank.lease_stale or rank.node_gone or rank.unready_s is not None
        assert heard_since or crashed_s > VERDICT_S
        assert not (kubelet_silent and rank.silent_s > SILENT_S)


@given(ATTEMPTS, st.booleans(), AGES)
def test_lost_node_was_silent_in_both_sources(
    ranks: list[ObservedRank], started: bool, age_s: float
) -> None:
    verdict = assessment.assess(ranks, started=started, age_s=age_s)
    if isinstance(verdict, Ended) and verdict.cause.code is CauseCode.NODE_LOST:
        for node in verdict.cause.nodes:
            assert any(
                rank.node == node
                and (rank.silent_s is None or rank.silent_s > SILENT_S)
                and (rank.lease_stale or rank.node_gone or rank.unready_s is not None)
                for rank in ranks
            )


@given(ATTEMPTS, st.booleans())
def test_every_attempt_that_cannot_go_on_ends(ranks: list[ObservedRank], started: bool) -> None:
    """Whoever waits for a rank that is not done can still hear from it, or suspects it."""
    verdict = assessment.assess(ranks, started=started, age_s=10_000.0)
    if isinstance(verdict, assessment.Ongoing):
        assert started
        for rank in ranks:
            running = rank.pod in (PodState.PENDING, PodState.RUNNING)
            waited_for = rank.crash is not None and (
                verdict.suspected or any(may_be_removed(other) for other in ranks)
            )
            assert is_well(rank) or running or waited_for


@given(ATTEMPTS, st.booleans(), AGES)
def test_success_needs_the_end_of_every_rank(
    ranks: list[ObservedRank], started: bool, age_s: float
) -> None:
    verdict = assessment.assess(ranks, started=started, age_s=age_s)
    assert isinstance(verdict, assessment.Succeeded) == all(is_well(rank) for rank in ranks)


@given(ATTEMPTS, st.booleans(), AGES)
def test_no_rank_is_blamed_for_its_pod_or_after_its_end(
    ranks: list[ObservedRank], started: bool, age_s: float
) -> None:
    """A deleted or evicted pod, or a rank that ended with 0, is never a failure of the user."""
    verdict = assessment.assess(ranks, started=started, age_s=age_s)
    if isinstance(verdict, Ended) and verdict.cause.code in USERS:
        blamed = {rank.crash.rank for rank in ranks if rank.crash and not is_well(rank)}
        assert verdict.cause.rank in blamed
        assert not any((rank.deleting or rank.evicted) and not is_well(rank) for rank in ranks)


def is_well(rank: ObservedRank) -> bool:
    taken = rank.deleting or rank.evicted != ""
    return rank.pod is PodState.SUCCEEDED or (rank.done and not taken)


def may_be_removed(rank: ObservedRank) -> bool:
    sigterm = rank.crash is not None and rank.crash.exit_code == 143 and not is_well(rank)
    return sigterm and rank.crash is not None and rank.crash.age_s <= REMOVAL_S
