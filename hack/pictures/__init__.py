"""The pictures that README begins with: what a terminal shows of a real run, as SVG. `make pictures`."""
