"""The links between a request and a running container, and the obstacles of each. Pure."""
