"""From a centre's own job log to a trace of its holes."""
