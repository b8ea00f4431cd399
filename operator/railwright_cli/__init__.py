"""``railwright``, the command line."""
