"""The daemon: it observes, plans and acts, keeps a history (SQLite), and publishes its status."""
