"""Objects that both the operator and the controllers watch, as records."""
