"""What runs on each node: measures how well this one reaches the others."""
