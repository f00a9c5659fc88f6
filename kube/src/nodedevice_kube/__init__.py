"""What all programs share, by the standard library and YAML: the way to the API server, the rules of configurations, and the planner of devices."""
