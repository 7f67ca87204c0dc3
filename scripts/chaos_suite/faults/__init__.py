"""What can break: one small function a fault. ``catalogue`` has them all by name."""
