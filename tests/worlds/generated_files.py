"""Files that carry topology, drawn as whole files and then damaged, in ConfigMaps as a site gives
them to the operator."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench import told_sites
from bench.told_sites import Site
from railwright_api import names
from worlds import machine_files, machines
from worlds.rank_tables import table

Json = dict[str, Any]

PLURAL = "configmaps"
LINES_MAX = 2_000
DEEP = 400
JUNK: tuple[Any, ...] = (
    *(None, True, 17, -1, 2**64, 1e308, "", "é", "\0", "no-topology", [], {}, [None], {"x": "y"}),
    *("x" * 254, "x" * 65_536, "[", "n[0-65535]", "n[0-99999999]", "n[1-2][1-9][0-99]" * 3),
)
BROKEN_LINES = ("{" * DEEP, "[" * DEEP, "&a " * DEEP, "a: &a [*a, *a]", "'", "- " * DEEP, "\t", "=")

WRITERS: Mapping[str, tuple[Callable[[Site], str], ...]] = {
    "plan.yaml": (told_sites.plan_of,),
    "topograph.json": (told_sites.graph,),
    "topograph.yaml": (told_sites.model,),
    "topology.conf": (
        told_sites.conf,
        lambda site: f"{told_sites.blocks(site.up_to(1))}\nBlockSizes=2,4,8",
    ),
    "topology.yaml": (told_sites.yaml,),
}
INSIDES = ("hccl.json", "inside.yaml")


class FileGenerator:
    """Draws ConfigMaps; ``nodes`` are those that the files of the last one tell of."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._number = 0
        self.nodes: tuple[str, ...] = ()

    def config_map(self) -> Json:
        """One or two files about the same site."""
        self._number += 1
        site = told_sites.planted(self._rng)
        self.nodes = tuple(site.paths)
        chosen = self._rng.sample([*WRITERS, *INSIDES], self._rng.randint(1, 2))
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"files{self._number}",
                "labels": {names.LABEL_FABRIC: names.SINGLETON},
            },
            "data": {name: self._damaged(self._whole(name, site)) for name in chosen},
        }

    def _whole(self, name: str, site: Site) -> str:
        if name in WRITERS:
            return self._rng.choice(WRITERS[name])(site)
        if name == "hccl.json":
            return json.dumps(table(self._rng.choice(["1.0", "1.2"]), *self.nodes[:4]))
        said = machine_files.described(machines.planted(self._rng))
        return json.dumps({"version": 1, "kinds": [said | {"nodes": ",".join(self.nodes)}]})

    def _damaged(self, text: str) -> str:
        for _ in range(self._rng.choice([0, 1, 1, 2, 4])):
            try:
                document = json.loads(text)
            except (ValueError, RecursionError):
                text = self._with_other_line(text)
            else:
                text = json.dumps(self._with_other_entry(document))
        return text

    def _with_other_line(self, text: str) -> str:
        rng, lines = self._rng, text.splitlines() or [""]
        at = rng.randrange(len(lines))
        line = lines[at]
        doubled = [line] * rng.choice([2, LINES_MAX])
        garbled = [line[: rng.randint(0, len(line))] + str(rng.choice(JUNK))]
        long = [f"{line},{','.join(f'q{n}' for n in range(LINES_MAX))}"]
        lines[at : at + 1] = rng.choice([[], doubled, garbled, long, [rng.choice(BROKEN_LINES)]])
        return "\n".join(lines)

    def _with_other_entry(self, document: Any) -> Any:
        rng, places = self._rng, [*_places(document)]
        if not places:
            return rng.choice(JUNK)
        holder, key = rng.choice(places)
        way = rng.random()
        if way < 0.2:
            del holder[key]
        elif way < 0.4 and isinstance(holder, list):
            holder += [holder[key]] * rng.choice([1, LINES_MAX])
        elif way < 0.4:
            holder[rng.choice(["x" * 254, "", "é", *holder])] = holder[key]
        elif way < 0.5:
            for _ in range(rng.choice([10, DEEP])):
                holder[key] = [holder[key]]
        else:
            holder[key] = rng.choice(JUNK)
        return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each holder and key of a document."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, dict | list):
            for key in holder if isinstance(holder, dict) else range(len(holder)):
                yield holder, key
                waiting.append(holder[key])
