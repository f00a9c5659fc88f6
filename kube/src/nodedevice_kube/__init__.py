"""The core that all programs share: the way to the API server, rules of configurations, the planner; without dependencies."""
