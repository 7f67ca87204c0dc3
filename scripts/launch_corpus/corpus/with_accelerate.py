"""accelerate's way."""

import accelerate
from reporting import train

if __name__ == "__main__":
    accelerate.Accelerator(cpu=True)
    train()
