"""What a cluster's holes are worth: figures, pictures and a report."""
