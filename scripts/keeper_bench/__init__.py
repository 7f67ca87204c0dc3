"""How much load a keeper can take: thousands of simulated agents, and users who flood it."""
