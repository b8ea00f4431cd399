"""The judge of a recorded history: what etcd was told in order, held against the invariants.

It trusts none of the product's own views. Objects are read as they are stored, by plain code that
is only here; from the product come the invariants, and the values they speak in.
"""
