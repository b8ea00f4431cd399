"""The rights of an account: what its manifests grant, and what the audit log says it used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from railwright_api import names
from railwright_testbed import audit
from railwright_testbed.audit import Right
from railwright_testbed.service_process import NAMESPACE

RIGHTS = Path(__file__).resolve().parents[2] / "deploy/rights"
ANYWHERE = "any namespace"
USED_BY: Mapping[str, tuple[str, frozenset[Right]]] = {
    "test_operator_profile": (
        audit.OPERATOR,
        frozenset(
            Right(verb, names.GROUP, names.PROFILES, "", ANYWHERE) for verb in ("create", "patch")
        ),
    ),
    "test_operator_hardware": (
        audit.CONTROLLERS,
        frozenset(
            Right(verb, names.GROUP, names.NODE_HEALTHS, "", ANYWHERE)
            for verb in ("create", "patch")
        ),
    ),
    "test_operator_surveys": (
        audit.CONTROLLERS,
        frozenset({Right("patch", "", "configmaps", "", NAMESPACE)}),
    ),
}
"""The rights that a test beside those of rights uses, with its account: recordings, agents and
surveys take minutes. Each such test calls ``expect_used``."""
DISCOVERED = re.compile(r"/apis?(/[^/]+){0,2}|/version")
"""Which kinds there are: Kubernetes lets every account ask (its role ``system:discovery``)."""


def granted(manifests: str) -> set[Right]:
    """What the roles in this file of ``deploy/rights`` grant of resources."""
    return {
        Right(verb, group, *_split(resource), role["metadata"].get("namespace", ANYWHERE))
        for role in _roles(manifests)
        for rule in role["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def granted_paths(manifests: str) -> set[tuple[str, str]]:
    """What they grant beside: verbs and paths, such as those of the keys of tokens."""
    return {
        (verb, path)
        for role in _roles(manifests)
        for rule in role["rules"]
        for path in rule.get("nonResourceURLs", ())
        for verb in rule["verbs"]
    }


def used(log: Path, user: str, granted: set[Right]) -> set[Right]:
    """What the account asked for, each under the right that allows it, if there is one."""
    return {
        right if right in granted else right._replace(namespace=ANYWHERE)
        for right in audit.used(log, user)
    }


def used_elsewhere(user: str) -> set[Right]:
    """The rights of this account that other tests use."""
    return {right for name, rights in USED_BY.values() if name == user for right in rights}


def expect_used(log: Path, test: str, *, namespace: str = "") -> None:
    """Assert that the requests of a module of tests succeeded, by the audit log. Those that are
    allowed in any namespace count in this one, or of cluster objects."""
    user, rights = USED_BY[test.rpartition(".")[2]]
    expected = {
        right._replace(namespace=namespace) if right.namespace == ANYWHERE else right
        for right in rights
    }
    done = {one.right for one in audit.requests(log) if one.user == user and one.landed}
    assert expected <= done, f"never used: {sorted(expected - done)}"


def used_paths(log: Path, user: str) -> set[tuple[str, str]]:
    """The verbs and paths of its requests without a resource, except those of discovery."""
    return {
        (verb, path) for verb, path in audit.paths_used(log, user) if not DISCOVERED.fullmatch(path)
    }


def defined_roles(manifests: str) -> set[str]:
    """The names of the roles in this file."""
    return {role["metadata"]["name"] for role in _roles(manifests)}


def bound_roles(service_account: str) -> set[str]:
    """The names of all roles that ``deploy/rights`` binds to this account."""
    return {
        document["roleRef"]["name"]
        for file in sorted(RIGHTS.glob("*.yaml"))
        for document in _documents(file)
        for subject in document.get("subjects") or ()
        if "roleRef" in document and subject["name"] == service_account
    }


def _roles(manifests: str) -> list[dict[str, Any]]:
    found = _documents(RIGHTS / manifests)
    return [each for each in found if each.get("kind") in ("Role", "ClusterRole")]


def _documents(file: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))


def _split(resource: str) -> tuple[str, str]:
    name, _, subresource = resource.partition("/")
    return name, subresource
