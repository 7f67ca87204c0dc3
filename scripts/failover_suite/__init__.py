"""Failover: everything on the first of two control hosts is killed while trainers train."""
