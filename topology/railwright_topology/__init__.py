"""Topology of the cluster: its sources, its tiers, and the hardware of its nodes."""
