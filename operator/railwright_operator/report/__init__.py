"""Telling people: statuses, events, metrics. Nothing here decides."""
