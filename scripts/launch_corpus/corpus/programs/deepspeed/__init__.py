"""A stand-in for DeepSpeed, which imports torch as soon as it is imported itself."""

import torch  # noqa: F401
