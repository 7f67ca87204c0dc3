"""``make bench-elastic``: how long trainers stand still as nodes come and go, side by side."""
