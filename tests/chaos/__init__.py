"""``make chaos`` and ``make failover``: faults, one after the other, on a cluster that trains.

What can break is in ``faults``, what must hold in ``invariants``, how a run goes in ``run``, and
its cluster in ``world``. ``failover`` kills a control host.
"""
