"""``make chaos`` and ``make failover``: faults, one after the other, on a cluster that trains."""
