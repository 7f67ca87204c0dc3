"""BFTrainer for Slurm: trains neural networks on the nodes that a Slurm cluster cannot fill."""

__version__ = "0.1.0"
