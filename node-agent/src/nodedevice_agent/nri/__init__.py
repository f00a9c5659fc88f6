"""The agent as a plugin of the container runtime, over NRI: mux (streams over one socket), ttrpc (calls over a stream), session
(one connection), plugin (a connection for ever), wire and adjustment (NRI's messages from and to core values).
"""
