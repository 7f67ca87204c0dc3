"""What DeepSpeed's command does: its options, and the launcher of one node."""

import argparse

from deepspeed.launcher import launch


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--num_gpus", type=int, default=-1)
    parser.add_argument("--include", default="")
    for flag in ("--module", "--no_python", "--no_local_rank"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("user_script")
    parser.add_argument("user_args", nargs=argparse.REMAINDER)
    return parser.parse_args(args)


def main(args: list[str] | None = None) -> None:
    """Start the processes."""
    launch.main()


if __name__ == "__main__":
    main()
