"""What a keeper bears: thousands of simulated agents, and users who flood it."""
