"""An operator with rights to run jobs in one namespace, and in no other."""

from __future__ import annotations

import contextlib
from pathlib import Path

from integration import manifests
from integration.operator_site import Job
from railwright_api import names
from railwright_testbed import ControlPlane, NodeSpec, service_process, waiting
from railwright_testbed.api_client import ApiError
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.operator_process import OperatorProcess

ROOT = Path(__file__).resolve().parents[2]
TEAM, OTHER = "team-a", "team-b"
NODE = NodeSpec("node", {names.LABEL_RACK: "rack"})


def test_operator_runs_jobs_in_its_namespaces_alone() -> None:
    with (
        ControlPlane.start("one-namespace") as plane,
        contextlib.closing(plane.client()) as admin,
        plane.kwok([NODE]),
    ):
        for namespace in (TEAM, OTHER):
            plane.kubectl("create", "namespace", namespace)
        service_process.install(plane, ROOT)
        plane.kubectl("delete", "-f", str(ROOT / "deploy/rights/all-namespaces.yaml"))
        plane.kubectl("-n", TEAM, "apply", "-f", str(ROOT / "deploy/namespaces/rights.yaml"))

        def refusal(namespace: str) -> str:
            """How a job there is refused; empty if it is taken."""
            path = manifests.path(names.TRAINING_JOBS, namespace)
            try:
                admin.post(path + manifests.ASK, manifests.job(role={"replicas": 1}))
            except ApiError as error:
                return str(error)
            return ""

        refused = f"the operator may not create pods in {OTHER}: an administrator binds"
        waiting.until(
            lambda: refused in refusal(OTHER) and not refusal(TEAM), "the rights", deadline_s=30
        )
        operator = OperatorProcess(
            plane, name="operator", host="127.0.0.1", launcher_image="example.com/launcher"
        )
        with ControllersProcess(plane), operator:
            jobs = manifests.path(names.TRAINING_JOBS, TEAM)
            admin.post(jobs, manifests.job(role={"replicas": 1}))
            assert Job(plane, admin, TEAM, "train").until_bound()["phase"] == "Starting"
