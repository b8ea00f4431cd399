"""What people and objects say, as the scheduler's values."""
