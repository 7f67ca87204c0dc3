"""What all benches share: options, findings, figures, targets, tables, pictures, the machine.

Starting clusters, and what a single bench measures, are elsewhere.
"""
