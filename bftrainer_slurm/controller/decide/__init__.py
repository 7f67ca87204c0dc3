"""From snapshot and state to actions; pure."""
