"""Publish what was found: the status of the Fabric, and NodeHealths."""
