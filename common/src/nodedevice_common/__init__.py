"""What both programs do in the same way. Knows neither of them; what crosses a process border is in nodedevice_api."""
