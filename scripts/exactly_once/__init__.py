"""``make exactly-once``: how often each sample is trained as nodes come and go."""
