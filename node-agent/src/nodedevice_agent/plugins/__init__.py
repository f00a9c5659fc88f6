"""The device plugins that come with the agent, and the host that serves them over gRPC as anybody's plugin is served.

They speak to the device manager only through its socket, as a third-party plugin would, and know nothing else of it. Read
run first, then server (one plugin's life), then generic and simulated (where devices come from); core decides, without I/O.
"""
