"""Compares the devices of the node's sources and publishes devices that two sources offer: these can be allocated twice."""
