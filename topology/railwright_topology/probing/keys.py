"""The keys by which agents know each other: one for each prober and responder.

A token that no agent has (the operator's, or a person's) gives each agent a token of its own. That
one, with a prober's name, gives the key of the pair. So the responder can derive its keys, a prober
has those of its own tasks, and neither can speak for a third.
"""

from __future__ import annotations

import hmac


def agent_token(shared: str, agent: str) -> str:
    """The token of one agent, by its node or its address: 64 hexadecimal digits."""
    return _derived(shared, f"agent {agent}")


def pair_key(token: str, prober: str) -> str:
    """The key of the agent with this token and a prober of this name: 64 hexadecimal digits."""
    return _derived(token, f"prober {prober}")


def _derived(secret: str, name: str) -> str:
    # JSON can say halves of characters, which no encoding has.
    text = name.encode(errors="replace")
    return hmac.new(secret.encode(errors="replace"), text, "sha256").hexdigest()
