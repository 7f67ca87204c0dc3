"""What all benches share: figures, targets, tables, pictures, the machine, and their command line.

What starts a cluster is not here, nor what a single bench measures.
"""
