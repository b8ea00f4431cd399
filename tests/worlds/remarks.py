"""What a reader says of a file: the remarks on what it left out, or why it refused all of it."""

from __future__ import annotations

from collections.abc import Callable

from railwright_topology.accounts import Account
from railwright_topology.fabric import Told
from railwright_topology.networks import Network
from railwright_topology.parts import Look, Looks
from railwright_topology.wiring import Wiring, WiringError

Read = Told | Look | Wiring


def remarks(read: Callable[[], Read | tuple[Read, ...]]) -> str:
    """One sentence a line."""
    try:
        found = read()
    except WiringError as refused:
        return str(refused)
    said: list[str] = []
    for each in found if isinstance(found, tuple) else (found,):
        if isinstance(each, Account | Wiring):
            said += each.strange
        elif isinstance(each, Network):
            said += each.account.strange
        elif isinstance(each, Looks):
            said += each.remarks
            said += (
                its for looks in each.by_host.values() for look in looks for its in look.remarks
            )
        else:
            said += each.remarks
    return "\n".join(said)
