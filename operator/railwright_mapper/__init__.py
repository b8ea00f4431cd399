"""The mapper: processes of the operator that compute mappings of ranks, a request at a time."""
