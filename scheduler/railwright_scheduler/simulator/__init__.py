"""A cluster in memory that real turns are taken in, where whatever can fail does, by one seed."""
