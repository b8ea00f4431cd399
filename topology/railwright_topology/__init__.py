"""What is wired to what: the fabric, its tiers, and where their facts come from."""
