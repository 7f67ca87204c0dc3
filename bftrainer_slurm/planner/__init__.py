"""From a problem to a plan: how many nodes each trainer should have, and which ones."""
