"""The cluster operator: turns NodeDevices into schedulable capacity and a per-pod record.

Read __main__ first, then operator, reconcile.node, capacity.decide.
"""

__version__ = "0.1.0"
