"""Check a recorded history: each write to etcd, in order, against the invariants.

It trusts none of the product's own views. Objects are read as they are stored, by plain code that
is only here; from the product come the invariants, and the values they speak in.
"""
