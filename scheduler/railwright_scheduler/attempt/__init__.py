"""The life of an attempt, as pure machines: commit all or nothing, tell causes apart, carry on."""
