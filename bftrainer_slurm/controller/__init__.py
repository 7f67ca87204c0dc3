"""The daemon: observe, plan, act. Its history (SQLite) and what it tells users."""
