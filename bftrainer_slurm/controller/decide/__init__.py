"""From what is seen and known to actions; pure."""
