"""The node agent: a device manager of its own on every node. Read __main__ first, then agent, and the folders by their names."""

__version__ = "0.1.0"

import os

# gRPC's own lines about closed connections would stand between ours; it reads this when it is imported first
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
