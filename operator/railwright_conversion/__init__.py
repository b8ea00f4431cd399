"""Objects of the API and messages of the worker, converted into the scheduler's values."""
