"""The nvml plugin: NVIDIA's GPUs as devices, with their health and how near they are to each other.

Two processes. The *reader* alone loads NVIDIA's library and calls the driver: what hangs or crashes there harms nobody else; it
tells what it sees as lines of JSON and decides nothing. The *watch*, in the agent, starts the reader, keeps the GPUs' health, and
offers them by the same gRPC service over the same socket as every other plugin. Read messages first, then reader, then watch.
"""
