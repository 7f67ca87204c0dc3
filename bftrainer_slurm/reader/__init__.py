"""What people read, in a process of its own: the page, metrics and the history."""
