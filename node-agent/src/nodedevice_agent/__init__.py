"""The node agent: a device manager of its own on every node. Read __main__ first, then agent, core, edges."""

__version__ = "0.1.0"
