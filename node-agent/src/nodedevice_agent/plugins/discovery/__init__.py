"""`nodedevice-agent discover`: the devices of a node that could be offered, with the settings that offer each. Never writes."""
