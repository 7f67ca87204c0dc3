"""The daemon: observe, plan, act; its history (SQLite), and what it publishes."""
