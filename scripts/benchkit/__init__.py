"""What all benches share: options, findings, figures, targets, tables, pictures, the machine.

What starts a cluster is not here, nor what a single bench measures.
"""
