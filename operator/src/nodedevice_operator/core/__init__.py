"""Decides and never acts: frozen records and `now` in, frozen decisions out. No I/O, clock or logging."""
