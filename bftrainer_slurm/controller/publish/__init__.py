"""What users and admins see."""
