"""The pod template: what is Railwright's own is refused with what to do; all else is kept."""

from __future__ import annotations

from typing import Any

import pytest

from integration import manifests
from integration.manifests import accept, refusal
from railwright_conversion import node_affinities
from railwright_testbed.api_client import ApiClient

Changes = dict[str, Any]
SPEC = "spec.roles[0].template.spec"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        ({"nodeName": "n1"}, [f"{SPEC}.nodeName", "chooses the nodes: use nodeSelector"]),
        ({"schedulerName": "default-scheduler"}, [f"{SPEC}.schedulerName", "remove it"]),
        ({"schedulingGates": [{"name": "g"}]}, [f"{SPEC}.schedulingGates", "spec.suspend"]),
        ({"restartPolicy": "Always"}, ['restartPolicy is "Always"', "failurePolicy", "remove it"]),
        ({"terminationGracePeriodSeconds": 0}, ["GracePeriodSeconds", "than or equal to 1"]),
        ({"terminationGracePeriodSeconds": 3601}, ["3601", "less than or equal to 3600"]),
        ({"hostname": "h"}, [f"{SPEC}.hostname", "remove it"]),
        ({"affinity": {"podAffinity": {}}}, [f"{SPEC}.affinity.podAffinity", "spec.topology"]),
        ({"affinity": {"podAntiAffinity": {}}}, ["affinity.podAntiAffinity", "spec.topology"]),
        (
            {"affinity": {"nodeAffinity": {PREFERRED: []}}},
            [f"nodeAffinity.{PREFERRED}", f"use {node_affinities.REQUIRED}"],
        ),
        ({"topologySpreadConstraints": []}, ["topologySpreadConstraints", "use spec.topology"]),
        ({"priorityClassName": "p"}, [f"{SPEC}.priorityClassName", "spec.priorityClassName"]),
        ({"activeDeadlineSeconds": 5}, ["activeDeadlineSeconds of the job"]),
        ({"priority": 5}, [f"{SPEC}.priority:", "use spec.priorityClassName"]),
        ({"resources": {"requests": {"cpu": 1}}}, ["use the resources of its containers"]),
        ({"overhead": {"cpu": "abc"}}, [f"{SPEC}.overhead", "RuntimeClass: remove it"]),
        (
            {"resourceClaims": [{"name": "c"}]},
            ["resourceClaims", "the resources of its containers"],
        ),
        ({"containers": []}, [f"{SPEC}.containers", "at least 1"]),
        ({"containers": [{"name": "c", "image": "i", "command": ["c"]}] * 9}, ["at most 8"]),
        ({"containers": [{"name": "c", "command": ["c"]}]}, ["containers[0].image: Required"]),
        ({"volumes": [{"name": "railwright-x", "emptyDir": {}}]}, ["volumes[0].name", "reserved"]),
        ({"initContainers": [{"name": "railwright", "image": "i"}]}, ["initContainers[0].name"]),
        ({"tolerations": [{"operator": "exists"}]}, ["tolerations[0].operator", '"Exists"']),
        ({"nodeSelector": {"a": "x" * 64}}, ["nodeSelector.a", "63"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_fields_set_by_railwright_are_refused(
    admin: ApiClient, pod: Changes, words: list[str]
) -> None:
    answer = refusal(admin, manifests.job(pod=pod))
    assert all(word in answer for word in words), answer


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_container_that_its_kubelet_restarts_is_refused(admin: ApiClient, policy: str) -> None:
    """A launcher that ended would begin again in the same attempt."""
    given = manifests.job(container={"restartPolicy": policy})
    if policy == "Never":
        accept(admin, given)
        return
    answer = refusal(admin, given)
    assert f'restartPolicy of container "train" is "{policy}", only "Never" works' in answer, answer
    assert "make the container a sidecar of initContainers" in answer


@pytest.mark.parametrize("part", ["containers", "initContainers"])
def test_restart_rules_of_containers_are_refused(admin: ApiClient, part: str) -> None:
    """One of any container can restart all of them."""
    exits = {"operator": "In", "values": [42]}
    rule = {"action": "RestartAllContainers", "exitCodes": exits}
    container = {"name": "c", "image": "i", "command": ["c"], "restartPolicyRules": [rule]}
    answer = refusal(admin, manifests.job(pod={part: [container]}))
    assert f"{part}[0].restartPolicyRules" in answer, answer
    assert "Railwright restarts whole attempts: see spec.failurePolicy" in answer


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ({"operator": "In"}, 'values of "zone" is empty: operator In needs at least one'),
        ({"operator": "NotIn", "values": []}, "operator NotIn needs at least one"),
        ({"operator": "Exists", "values": ["a"]}, 'values of "zone" has 1 values: operator Exists'),
        ({"operator": "Gt", "values": ["a"]}, "not one whole number"),
        ({"operator": "Lt", "values": ["1", "2"]}, "not one whole number"),
        ({"operator": "Equals"}, 'Unsupported value: "Equals"'),
    ],
)
def test_invalid_affinity_is_refused(
    admin: ApiClient, expression: dict[str, Any], words: str
) -> None:
    term = {"matchExpressions": [{"key": "zone"} | expression]}
    assert words in refusal(admin, manifests.job(pod=affinity(term)))


@pytest.mark.parametrize(
    "term",
    [
        {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["1"]}]},
        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1"]}]},
        {},
    ],
)
def test_required_affinity_is_accepted(admin: ApiClient, term: dict[str, Any]) -> None:
    accept(admin, manifests.job(pod=affinity(term)))


def affinity(term: dict[str, Any]) -> Changes:
    required = {node_affinities.REQUIRED: {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize("command", [None, []])
def test_the_first_container_needs_a_command(admin: ApiClient, command: list[str] | None) -> None:
    answer = refusal(admin, manifests.job(container={"command": command}))
    assert 'containers[0].command is missing in "train"' in answer, answer
    assert "cannot know an image's own entrypoint" in answer


@pytest.mark.parametrize("part", ["containers", "initContainers"])
@pytest.mark.parametrize("side", ["requests", "limits"])
@pytest.mark.parametrize(
    ("resource", "amount", "expected"),
    [
        ("cpu", "lots", "not a quantity from 0 to 100k, such as 8 or 500m"),
        ("cpu", -1, "not a quantity from 0 to 100k, such as 8 or 500m"),
        ("memory", "100Ei", "not a quantity from 0 to 256Ti, such as 64Gi"),
        ("nvidia.com/gpu", "500m", "not a whole number from 0 to 999999, such as 8"),
    ],
)
def test_sidecars_and_init_containers_request_countable_amounts(
    admin: ApiClient, part: str, side: str, resource: str, amount: object, expected: str
) -> None:
    """Their requests must be valid quantities, as those of the main container."""
    beside = {"name": "side", "image": "i", "resources": {side: {resource: amount}}}
    first = {"name": "train", "image": "i", "command": ["c"]}
    given = {"containers": [first, beside]} if part == "containers" else {part: [beside]}
    answer = refusal(admin, manifests.job(pod=given))
    assert f'{resource} is "{amount}", {expected}' in answer, answer
    assert f"{part}[{len(given[part]) - 1}].resources.{side}" in answer


def test_sidecar_may_request_devices_and_parts_of_a_cpu(admin: ApiClient) -> None:
    asked = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1"}}
    beside = {"name": "side", "image": "i", "resources": asked}
    first = {"name": "train", "image": "i", "command": ["c"]}
    accept(admin, manifests.job(pod={"containers": [first, beside]}))


@pytest.mark.parametrize(
    "name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RAILWRIGHT_X"]
)
def test_environment_of_rank_numbers_is_reserved(admin: ApiClient, name: str) -> None:
    env = [{"name": "FINE", "value": "1"}, {"name": name, "value": "1"}]
    answer = refusal(admin, manifests.job(container={"env": env}))
    assert "containers[0].env[1].name" in answer, answer
    assert f"name: {name} is reserved, Railwright sets it for each rank: remove it" in answer


def test_a_value_of_more_than_32_kib_is_refused(admin: ApiClient) -> None:
    env = [{"name": "V", "value": "x" * (32 * 1024 + 1)}]
    answer = refusal(admin, manifests.job(container={"env": env}))
    assert "env[0].value: Too long" in answer, answer[:500]


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_labels_and_annotations_of_our_group_are_reserved(admin: ApiClient, field: str) -> None:
    metadata = {field: {"team": "a", "railwright.dev/attempt": "7"}}
    answer = refusal(admin, manifests.job(metadata=metadata))
    assert f"spec.roles[0].template.metadata.{field}" in answer, answer
    assert f"{field}: railwright.dev/attempt is reserved" in answer


def test_owner_references_are_refused(admin: ApiClient) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    answer = refusal(admin, manifests.job(metadata={"ownerReferences": [owner]}))
    assert "ownerReferences is reserved: the job owns its pods: remove it" in answer, answer


def test_a_template_that_kubectl_wrote_is_accepted(admin: ApiClient) -> None:
    """``kubectl create deployment --dry-run=client -o yaml`` writes a null into its template."""
    stored = accept(
        admin, manifests.job(metadata={"creationTimestamp": None, "labels": {"a": "b"}})
    )
    assert stored["spec"]["roles"][0]["template"]["metadata"] == {"labels": {"a": "b"}}


def test_names_of_pods_are_refused(admin: ApiClient) -> None:
    answer = refusal(admin, manifests.job(metadata={"name": "trainer"}))
    assert "name is reserved: pods are named by job, role, index and attempt" in answer, answer


def test_unknown_pod_fields_are_kept(admin: ApiClient) -> None:
    container = {
        "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "securityContext": {"runAsUser": 1000},
        "volumeMounts": [{"name": "data", "mountPath": "/data", "readOnly": True}],
        "ports": [{"containerPort": 8080}],
    }
    pod: Changes = {
        "initContainers": [{"name": "fetch", "image": "i", "restartPolicy": "Always"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}],
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 60}],
        "serviceAccountName": "trainer",
        "hostIPC": True,
        "restartPolicy": "Never",
    }
    given = manifests.job(pod=pod, container=container, metadata={"labels": {"team": "a"}})
    stored = accept(admin, given)
    assert stored["spec"]["roles"][0]["template"] == given["spec"]["roles"][0]["template"]
