"""Store the profile that the ranks of a job recorded. The reporter calls this."""

from __future__ import annotations

from railwright_api import names, routes
from railwright_kube import bodies
from railwright_kube.client import Api
from railwright_operator.watch import owned
from railwright_operator.watch.jobs import CachedJob
from railwright_operator.watch.owned import ProfileRecord
from railwright_operator.write import rendering


async def store(api: Api, cached: CachedJob, attempt: int, document: str) -> ProfileRecord:
    """Create the Profile of a job, or replace its spec.

    Raises RequestFailed, also while the Profile of a deleted job of this name exists.
    """
    metadata, held = cached.raw["metadata"], cached.profile
    name, namespace = metadata["name"], metadata["namespace"]
    workload = cached.job.spec.workload
    parallelism = workload and workload.parallelism.fixed.model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    # A patch removes what is null.
    spec = {
        "jobUID": cached.uid,
        "attempt": attempt,
        "parallelism": parallelism,
        "document": document,
    }
    if held is not None:
        path = routes.one(names.PROFILES, name, namespace=namespace)
        written = await api.patch(path, {"metadata": {"uid": held.uid}, "spec": spec})
        return owned.profile(owned.answered(written))
    owner = rendering.owner_reference(name, uid=cached.uid)
    own_metadata = {"name": name, "namespace": namespace, "ownerReferences": [owner]}
    stated = {name: value for name, value in spec.items() if value is not None}
    body = bodies.manifest(names.API_VERSION, "Profile", own_metadata, stated)
    made = await api.create(routes.kind(names.PROFILES, namespace), body)
    return owned.profile(owned.answered(made))
