"""What can stop a pod: the table of reasons, and what its rows are made of. Pure."""
