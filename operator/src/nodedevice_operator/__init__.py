"""The cluster operator: turns NodeDevices into schedulable capacity and a per-pod record.

Read __main__ first, then operator, edges.node_work, core.capacity.
"""

__version__ = "0.1.0"
