"""The Kubernetes client core of all programs: where the API server is, as whom to connect, and what can go wrong."""
