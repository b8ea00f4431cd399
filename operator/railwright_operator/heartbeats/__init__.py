"""Hearing from launchers: the server, who may speak, and what was last said."""
