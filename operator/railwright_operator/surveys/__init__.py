"""The network measured by itself: which nodes, when, and by whom."""
