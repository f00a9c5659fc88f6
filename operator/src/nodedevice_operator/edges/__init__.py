"""Acts: the API server, the watch, HTTP. Each library's errors and wire forms stay in here."""
