"""The links between a request and a container that runs: what each is like when it is broken. Pure."""
