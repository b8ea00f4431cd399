"""Which rank goes where: a job's communication laid onto the free parts of a fabric."""
