"""Who makes a pod, and what keeps them from it: controllers, queues, rolling updates."""
