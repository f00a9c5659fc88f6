"""The table of reasons that can stop a pod, and the parts of its rows. Pure."""
