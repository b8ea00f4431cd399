"""The demo: one job loses a node in mid-training, and goes on as if nothing had happened.

`python -m railwright_demo` does it on five real nodes with real training, and measures it;
`--simulated` does it without pods and without root, and measures what is left to measure.
`--kubeconfig` does it on somebody's cluster: there it deletes a pod instead of a node.
"""
