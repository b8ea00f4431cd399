"""Whole objects drawn from the CRDs' own schemas: fields together, at and beyond their bounds.

Of independent random fields the API server would accept hardly any, so a TrainingJob begins with
fields that fit each other; some of them are then replaced by anything that the schema has bounds
for.
"""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import yaml

from railwright_api import names
from worlds import heavy_workloads

Json = dict[str, Any]

CRDS = Path(__file__).resolve().parents[2] / "crds"
KINDS = ("trainingjobs", "queues", "fabrics")
TIERS = ("nearest", "second", "third", "island", "rack", "block", "nowhere", "é", "a" * 1024)
QUANTITIES = ("0", "1", "8", "100m", "1.5", "64Gi", "9223372036854775807", "1e3", "4Ei", "-1", 2)
RESOURCES = ("nvidia.com/gpu", "cpu", "memory", "ephemeral-storage", "example.com/npu", "pods", "x")
BEYOND = 0.3
"""How often a drawn number, text or list is beyond its bounds."""


class ObjectGenerator:
    """Draws objects from one seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._schemas = {kind: _schema(kind) for kind in KINDS}
        self._number = 0

    def job(self) -> Json:
        """A TrainingJob in namespace ``default``."""
        rng = self._rng
        nodes = rng.choice([1, 1, 2, 3, 4, 5, 8, 12, 16, rng.randint(1, 64), 16_384])
        ranks = rng.choice([1, 1, 2, 4, 8, rng.randint(1, 64)])
        spec: Json = {"numNodes": nodes, "numProcPerNode": ranks, "template": self._template()}
        spec["resourcesPerNode"] = {
            rng.choice(RESOURCES): rng.choice(QUANTITIES) for _ in range(rng.randint(0, 3))
        }
        if rng.random() < 0.7:
            spec["topology"] = self._topology(nodes)
        if rng.random() < 0.7:
            spec["workload"] = heavy_workloads.fields(rng, nodes * ranks)
        schema = self._schemas["trainingjobs"]["properties"]["spec"]
        if rng.random() < 0.5:
            self._replace(spec, schema, times=rng.randint(1, 3))
        return self._object("TrainingJob", spec)

    def other(self, kind: str) -> Json:
        """A Queue or Fabric, by its plural; of all that its schema has."""
        spec = self._drawn(self._schemas[kind]["properties"]["spec"])
        return self._object({"queues": "Queue", "fabrics": "Fabric"}[kind], spec)

    def _object(self, kind: str, spec: Any) -> Json:
        self._number += 1
        return {
            "apiVersion": names.API_VERSION,
            "kind": kind,
            "metadata": {"name": f"g{self._number}"},
            "spec": spec,
        }

    def _template(self) -> Json:
        container: Json = {"name": "train", "image": "python:3.12", "command": ["train"]}
        if self._rng.random() < 0.3:
            amounts = {self._rng.choice(RESOURCES): self._rng.choice(QUANTITIES[:7])}
            container["resources"] = {"requests": amounts, "limits": amounts}
        pod: Json = {"containers": [container]}
        if self._rng.random() < 0.2:
            pod["nodeSelector"] = {"kind": self._rng.choice(["h100", "", "é"])}
        if self._rng.random() < 0.2:
            pod["tolerations"] = [{"operator": "Exists"}]
        return {"spec": pod}

    def _topology(self, nodes: int) -> Json:
        rng = self._rng
        divisors = [count for count in range(1, min(nodes, 64) + 1) if nodes % count == 0]
        parts: Json = {
            "required": rng.choice(TIERS),
            "preferred": rng.choice(TIERS),
            "segment": {"tier": rng.choice(TIERS), "nodes": rng.choice([*divisors, nodes, 7])},
            "spread": {"tier": rng.choice(TIERS), "nodes": rng.choice([1, 2, nodes, 16_384])},
            "rails": "Aligned",
        }
        return {name: part for name, part in parts.items() if rng.random() < 0.6}

    def _replace(self, value: Json, schema: Json, *, times: int) -> None:
        """Replace fields anywhere below by what is drawn from their own schemas."""
        for _ in range(times):
            at, its = value, schema
            while True:
                name = self._rng.choice(sorted(its["properties"]))
                below = its["properties"][name]
                if name == "template":
                    break
                if not isinstance(at.get(name), dict) or "properties" not in below:
                    at[name] = self._drawn(below)
                    break
                at, its = at[name], below

    def _drawn(self, schema: Json) -> Any:
        rng = self._rng
        if "enum" in schema:
            return rng.choice([*schema["enum"], *(["other"] if rng.random() < BEYOND / 3 else [])])
        if schema.get("x-kubernetes-int-or-string"):
            return rng.choice(QUANTITIES)
        match schema.get("type"):
            case "boolean":
                return rng.random() < 0.5
            case "integer" | "number":
                low, high = schema.get("minimum", -(2**31)), schema.get("maximum", 2**53)
                beyond = [low - 1, high + 1] if rng.random() < BEYOND else []
                return rng.choice([low, high, rng.randint(int(low), int(high)), *beyond])
            case "string":
                return self._text(schema)
            case "array":
                size = rng.choice([0, 1, 2, min(schema.get("maxItems", 4), 64)])
                return [self._drawn(schema["items"]) for _ in range(size)]
            case _:
                return self._fields(schema)

    def _text(self, schema: Json) -> str:
        low, high = schema.get("minLength", 0), schema.get("maxLength", 256)
        sizes = [low, min(high, 4096), self._rng.randint(low, min(high, 64))]
        if self._rng.random() < BEYOND:
            sizes.append(high + 1)
        letter = str(self._rng.choice("aé0-./"))
        return letter * int(self._rng.choice(sizes))

    def _fields(self, schema: Json) -> Json:
        found = {
            name: self._drawn(below)
            for name, below in schema.get("properties", {}).items()
            if name in schema.get("required", ()) or self._rng.random() < 0.6
        }
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict):
            found |= {f"key{at}": self._drawn(extra) for at in range(self._rng.randint(0, 3))}
        return copy.deepcopy(found)


def _schema(kind: str) -> Json:
    text = (CRDS / f"{kind}.yaml").read_text(encoding="utf-8")
    (version,) = yaml.safe_load(text)["spec"]["versions"]
    found: Json = version["schema"]["openAPIV3Schema"]
    return found
