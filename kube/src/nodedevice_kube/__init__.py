"""What all programs share, by the standard library and YAML: the way to the API server, rules of configurations, the planner."""
