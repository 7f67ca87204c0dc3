"""What users and admins are shown."""
