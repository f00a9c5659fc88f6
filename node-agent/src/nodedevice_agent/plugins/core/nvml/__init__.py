"""What is decided about GPUs, without a driver at hand: their health, how near they are to each other, what a container gets.

Facts about GPUs come as values from the process that reads the driver (see plugins.nvml); nothing here calls it.
"""
