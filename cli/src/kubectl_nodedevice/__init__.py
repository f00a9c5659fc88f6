"""`kubectl nodedevice`: shows the devices of a cluster, and explains why they cannot be used."""

__version__ = "0.1.0"
