"""The nvml plugin: NVIDIA's GPUs as devices, with their health and how near they are to each other.

Two processes. Only the *reader* loads NVIDIA's library and calls the driver, so that a hang or a crash stays there; it reports as
lines of JSON and decides nothing. The *watch*, in the agent, starts the reader, tracks the GPUs' health and serves them
like every other plugin. Read reader/messages.py first, then reader/__main__.py, then watch.py.
"""
