"""The cluster operator. Read __main__ first, then operator, reconcile.node, capacity.decide."""

__version__ = "0.1.0"
