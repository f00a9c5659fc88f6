"""The agent as an NRI plugin of the container runtime.

mux carries several streams over one socket, ttrpc makes calls over a stream, session is one connection, plugin reconnects for as
long as the agent runs, codec converts between NRI's messages and the device manager's values.
"""
