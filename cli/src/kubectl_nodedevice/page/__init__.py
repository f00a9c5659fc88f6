"""The page of `kubectl nodedevice open`: every device of the cluster, live, in a browser."""
