"""The life of an attempt as pure functions: gang commit, assessment, causes, recovery."""
