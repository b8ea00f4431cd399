"""Slurm's ``topology.conf`` and ``topology.yaml`` -> who stands below which switches or blocks.

    SwitchName=leaf-1 Nodes=gpu[01-16]
    SwitchName=leaf-2 Nodes=gpu[17-32]
    SwitchName=spine Switches=leaf-[1-2]

    BlockName=b1 Nodes=gpu[01-18]
    BlockSizes=18,36

A line is read as Slurm reads it: keys in any case, values in quotes or without blanks, a comment
behind ``#``, and one line for two where the first ends in a backslash. Blocks form larger ones with
those that follow in the file: of the sizes 18 and 36, two and two.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from railwright_topology.accounts import Account, Basis
from railwright_topology.sources import documents, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.trees import Switch
from railwright_topology.wiring import WiringError

CONF = "topology.conf"
YAML = "topology.yaml"

CHARACTERS_MAX = 1 << 22
NAME_MAX = 63

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_CONTINUED = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*$")
_PAIR = re.compile(r'\s*([\w.]+)\s*=\s*(?:"([^"]*)"|(\S+))(?=\s|$)')
_FIELDS = {
    "switchname": ("switchname", "switches", "nodes", "linkspeed"),
    "blockname": ("blockname", "nodes"),
    "blocksizes": ("blocksizes",),
}
_KINDS = ("tree", "block", "flat")
_TRUE, _FALSE = ("true", "yes", "on"), ("false", "no", "off")

_Statement = tuple[int, Mapping[str, str]]


def parse_conf(text: str) -> Account:
    """Read a whole ``topology.conf``. Raises WiringError where it is none, or not a tree."""
    if len(text) > CHARACTERS_MAX:
        raise WiringError(CONF, 1, f"has {len(text)} characters, at most {CHARACTERS_MAX}")
    statements = [_statement(line, said) for line, said in _lines(text)]
    kinds = {next(iter(said)) for _, said in statements}
    if "switchname" in kinds:
        for line, said in statements:
            if "switchname" not in said:
                raise WiringError(CONF, line, "blocks stand among switches: it is one or the other")
        return Account(CONF, Basis.TOLD, trees.tiers(CONF, _conf_switches(statements)))
    sizes = [(line, said["blocksizes"]) for line, said in statements if "blocksizes" in said]
    if len(sizes) > 1:
        raise WiringError(CONF, sizes[1][0], "BlockSizes stands twice")
    blocks = (
        Switch(line, said["blockname"], nodes=trees.names(CONF, line, said["nodes"]))
        for line, said in statements
        if "blockname" in said
    )
    steps = [_steps(CONF, line, said.split(",")) for line, said in sizes]
    return Account(CONF, Basis.TOLD, _block_tiers(CONF, blocks, steps[0] if steps else ()))


def parse_yaml(text: str) -> tuple[Account, ...]:
    """Read a whole ``topology.yaml``: an account of each topology in it, that of the cluster first.
    A flat one knows of no tiers."""
    found: dict[str, Account] = {}
    default = None
    for entry in documents.read(YAML, text).each("topologies"):
        fields = entry.entries("one topology")
        unknown = [key for key in fields if key not in ("topology", "cluster_default", *_KINDS)]
        if unknown or len([kind for kind in _KINDS if kind in fields]) != 1:
            also = f", not {unknown[0][:80]!r}" if unknown else ""
            raise entry.error(f"a topology is one of {', '.join(_KINDS)}{also}")
        if "topology" not in fields:
            raise entry.error("a topology has a name: topology")
        name = fields["topology"].text("a topology's name")
        if name in found or len(name) > NAME_MAX or not name.isprintable():
            rule = f"is described twice, or has more than {NAME_MAX} printable characters"
            raise entry.error(f"topology {name[:80]!r} {rule}")
        found[name] = Account(f"{YAML} {name}", Basis.TOLD, _yaml_tiers(fields))
        if default is None and "cluster_default" in fields and _is_true(fields["cluster_default"]):
            default = name
    if not found:
        raise WiringError(YAML, 1, "no topology is in it")
    return tuple(found[name] for name in sorted(found, key=lambda name: name != default))


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Each statement with the line that it starts in."""
    start, joined = 0, ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub(r"\1", raw)
        start = start or number
        if continued := _CONTINUED.search(line):
            joined += line[: continued.start()] + continued[1]
            continue
        said = re.sub(r"\\(.?)", r"\1", joined + line)
        if said.strip():
            yield start, said
        start, joined = 0, ""
    if joined.strip():
        yield start, re.sub(r"\\(.?)", r"\1", joined)


def _statement(line: int, said: str) -> _Statement:
    found: dict[str, str] = {}
    at = 0
    while said[at:].strip():
        pair = _PAIR.match(said, at)
        if pair is None:
            raise WiringError(CONF, line, f"{said[at:].strip()[:80]!r} is no Key=value")
        key = pair[1].lower()
        known = _FIELDS.get(next(iter(found), key))
        if known is None or key not in known:
            rule = "starts with SwitchName=, BlockName= or BlockSizes=: tree and block are read"
            if known is not None:
                rule = f"{pair[1]!r} does not belong to {known[0]}"
            raise WiringError(CONF, line, rule)
        if key in found:
            raise WiringError(CONF, line, f"{pair[1]!r} stands twice")
        found[key] = pair[2] if pair[2] is not None else pair[3]
        at = pair.end()
    if "blockname" in found and "nodes" not in found:
        raise WiringError(CONF, line, f"block {found['blockname']!r} has no Nodes=")
    return line, found


def _conf_switches(statements: Sequence[_Statement]) -> Iterator[Switch]:
    for line, said in statements:
        if "switches" in said and "nodes" in said:
            raise WiringError(CONF, line, "a switch has Switches= or Nodes=, not both")
        yield Switch(
            line,
            said["switchname"],
            trees.names(CONF, line, said["switches"]) if "switches" in said else (),
            trees.names(CONF, line, said["nodes"]) if "nodes" in said else (),
        )


def _yaml_tiers(fields: Mapping[str, Value]) -> tuple[Mapping[str, str], ...]:
    if "flat" in fields:
        if not _is_true(fields["flat"]):
            raise fields["flat"].error("flat is true, or another kind stands here")
        return ()
    if "tree" in fields:
        tree = fields["tree"].fields("tree", ("switches",))
        return trees.tiers(YAML, _yaml_switches(tree["switches"] if tree else fields["tree"]))
    block = fields["block"].fields("block", ("block_sizes", "blocks"))
    steps: Sequence[int] = ()
    if sizes := block.get("block_sizes"):
        said = [size.text("a number of nodes") for size in sizes.each("block sizes")]
        steps = _steps(YAML, sizes.line, said) if said else ()
    listed = block["blocks"].each("blocks") if "blocks" in block else ()
    return _block_tiers(YAML, map(_yaml_block, listed), steps)


def _yaml_switches(switches: Value) -> Iterator[Switch]:
    for entry in switches.each("switches"):
        fields = entry.fields("a switch", ("switch", "children", "nodes"))
        children, nodes = (
            _yaml_names(fields[key]) if key in fields else [] for key in ("children", "nodes")
        )
        if children and nodes:
            raise entry.error("a switch has children or nodes, not both")
        yield Switch(entry.line, _yaml_name(entry, fields, "switch"), children, nodes)


def _yaml_block(entry: Value) -> Switch:
    fields = entry.fields("a block", ("block", "nodes"))
    name = _yaml_name(entry, fields, "block")
    if "nodes" not in fields:
        raise entry.error(f"block {name!r} has no nodes")
    return Switch(entry.line, name, nodes=_yaml_names(fields["nodes"]))


def _yaml_name(entry: Value, fields: Mapping[str, Value], kind: str) -> str:
    if kind not in fields:
        raise entry.error(f"a {kind} has a name: {kind}")
    return fields[kind].text(f"a {kind}'s name")


def _yaml_names(value: Value) -> list[str]:
    listed = value.content if isinstance(value.content, tuple) else (value,)
    said = ",".join(each.text("a host list") for each in listed)
    return trees.names(YAML, value.line, said)


def _steps(source: str, line: int, sizes: Sequence[str]) -> list[int]:
    """How many blocks each larger one is made of, from the numbers of nodes."""
    if not all(re.fullmatch(r"[1-9][0-9]{0,8}", size.strip()) for size in sizes):
        raise WiringError(source, line, "block sizes are numbers of nodes, such as 18,36")
    base, *larger = map(int, sizes)
    steps = [size // base for size in larger]
    whole = all(step * base == size for step, size in zip(steps, larger, strict=True))
    rising = all(low < high for low, high in itertools.pairwise([1, *steps]))
    if not whole or not rising or any(step & (step - 1) for step in steps):
        rule = f"block sizes double, or more: {base}, {2 * base}, {4 * base}"
        raise WiringError(source, line, rule)
    return steps


def _block_tiers(
    source: str, blocks: Iterable[Switch], steps: Iterable[int]
) -> tuple[Mapping[str, str], ...]:
    found = trees.members(source, blocks)
    if not found:
        raise WiringError(source, 1, "no node is in it")
    order = list(dict.fromkeys(found.values()))
    tiers = [found]
    for step in steps:
        larger = {}
        for some in (order[at : at + step] for at in range(0, len(order), step)):
            larger.update(dict.fromkeys(some, f"{some[0]}..{some[-1]}"))
        tiers.append({node: larger[block] for node, block in found.items()})
    return tuple(tiers)


def _is_true(value: Value) -> bool:
    said = value.text("true or false").lower()
    if said not in _TRUE + _FALSE:
        raise value.error(f"{said[:80]!r} is neither true nor false")
    return said in _TRUE
