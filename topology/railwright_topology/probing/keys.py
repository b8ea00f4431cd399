"""Derive the keys by which agents authenticate each other: one for each prober and responder.

Each agent's token is derived from a token that no agent has (the controllers', or a person's). The
key of a pair is derived from the responder's token and the prober's name. So the responder derives
its keys, a prober gets those of its tasks, and neither can impersonate a third agent.
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
