"""One process, without any group."""

from reporting import train

if __name__ == "__main__":
    train()
