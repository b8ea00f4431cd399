"""The node agent: reports the hardware of its node, and measures paths to other nodes."""
