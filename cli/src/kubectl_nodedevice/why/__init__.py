"""`kubectl nodedevice why`: explains why a pod has no devices, a node serves none, or a device is not free."""
