"""Publish statuses, events and metrics. Nothing here decides."""
