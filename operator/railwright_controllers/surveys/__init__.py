"""Surveys: measure the topology of the network with probes between node agents."""
