"""When the executor sends the deletion of a pod, and what becomes of a refusal."""

from __future__ import annotations

from dataclasses import replace

from fixtures import attempts
from fixtures.executing import ENTRY, Shell
from railwright_kube import errors
from railwright_operator.write.executor import PAUSE_S
from railwright_scheduler.attempt.gang import CreatePod, DeletePod

POD = attempts.pods("-")[0]
CREATE = CreatePod(ENTRY, 0)
DELETE = DeletePod(ENTRY, POD)
QUOTA = errors.ForbiddenError(403, "Forbidden", message="exceeded quota: team")
CONFLICT = errors.ConflictError(409, "Conflict", message="the UID is another")


async def test_refused_deletion_is_repeated_after_its_pause() -> None:
    """Nothing else is planned for an attempt that ends, until the policy is lifted."""
    shell = Shell()
    await shell.do(CREATE)
    shell.server.answers["delete"] = QUOTA
    assert await shell.do(DELETE) == ["delete"]
    assert await shell.do(DELETE) == []
    shell.now_s += 2 * PAUSE_S.base_s
    assert await shell.do(DELETE) == ["delete"]


async def test_deletion_names_the_uid_of_its_pod() -> None:
    shell = Shell()
    await shell.do(CREATE)
    await shell.do(DELETE)
    (_, body) = shell.server.bodies
    assert body.get("preconditions") == {"uid": POD.uid}


async def test_a_pod_that_is_gone_or_another_by_now_needs_no_delete() -> None:
    shell = Shell()
    await shell.do(CREATE)
    for error in (CONFLICT, errors.NotFoundError(404, "NotFound", message="gone")):
        shell.server.answers["delete"] = error
        assert await shell.do(DELETE) == ["delete"]
        assert shell.reported == (None, "")


async def test_a_deletion_that_the_watch_delivered_since_is_not_sent() -> None:
    """The plan is older than the watch: the pod is gone, or already stops."""
    shell = Shell()
    assert await shell.do(DELETE) == []
    await shell.do(CREATE)
    shell.pods.absorb(replace(shell.pods.records[POD.uid], deleting=True))
    assert await shell.do(DELETE) == []
