"""The device plugins that come with the agent, and the host that serves them over gRPC as anybody's plugin is served.

They reach the device manager only through its socket, as a third-party plugin does. Read run first, then generic, simulated and
nvml, which know the devices; lib.deviceplugin_server serves them.
"""
