"""`kubectl nodedevice`: what the devices of a cluster do, for people."""

__version__ = "0.1.0"
