"""What the built-in plugins decide: names, IDs, which files make which device. No I/O, clock, logging or libraries."""
