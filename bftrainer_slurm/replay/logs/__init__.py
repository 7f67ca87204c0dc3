"""A centre's own job log in, a trace of its holes out."""
