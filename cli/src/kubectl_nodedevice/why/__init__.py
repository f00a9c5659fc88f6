"""`kubectl nodedevice why`: what keeps a pod from its devices, a node from giving them out, a device from being free."""
