"""The pictures that README begins with: the page of a real run. `make pictures`."""
