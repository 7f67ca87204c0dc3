"""Problem in, plan out: how many nodes each trainer should have, and which ones."""
