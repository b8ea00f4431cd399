"""The kinds of railwright.dev as pydantic models; the files in ``crds/`` are made from them."""
