"""The decision: which jobs start, on which nodes, and why the others wait."""
