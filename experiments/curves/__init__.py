"""``make bench-curves``: what it costs not to know the throughput curves."""
