"""Where nodes stand, found out by measuring between some of the pairs of them, and checked so."""
