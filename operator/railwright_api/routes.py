"""Where the API server serves our kinds."""

from __future__ import annotations

from urllib.parse import quote

from railwright_api import names


def kind(plural: str, namespace: str | None = None) -> str:
    """All objects of a kind, of one namespace or (None) of the cluster."""
    within = "" if namespace is None else f"/namespaces/{_part(namespace)}"
    return f"/apis/{names.API_VERSION}{within}/{_part(plural)}"


def one(plural: str, name: str, *, namespace: str | None = None) -> str:
    """One object of a kind."""
    return f"{kind(plural, namespace)}/{_part(name)}"


def _part(value: str) -> str:
    assert value not in ("", ".", ".."), f"a path part is {value!r}, expected a name"
    return quote(value, safe="")
