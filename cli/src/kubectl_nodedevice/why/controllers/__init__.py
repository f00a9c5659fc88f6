"""The controllers, queues and rolling updates that make pods, and what stops them."""
