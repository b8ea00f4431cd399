"""Where a gang goes: the fewest racks, then the fewest blocks, and so on; rank by rank."""
