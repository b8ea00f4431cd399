"""``railwright``: what people ask on the command line."""
