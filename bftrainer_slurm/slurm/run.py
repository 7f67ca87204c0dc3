"""The only module that runs Slurm's commands; it turns their failures into errors of this package.

Commands run without a shell, with a time limit, and in an environment in which their output is the
same everywhere. sbatch runs in the caller's own environment, because the job inherits it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bftrainer_slurm.slurm.gateway import (
    GatewayError,
    NoCommandError,
    RefusedError,
    SlurmUnavailableError,
)

# Slurm's commands retry by themselves for MessageTimeout (10 s unless configured) or longer.
DEFAULT_TIMEOUT_S = 60.0

# This host has no slurm.conf, and DNS names no slurmctld that could send one.
_NOT_CONFIGURED = "Could not establish a configuration source"
_CONFIGURE = "set SLURM_CONF to this cluster's slurm.conf"
# Messages of slurm_strerror() (22.05 to 26.05) for errors that have nothing to do with the request.
_UNAVAILABLE = (
    "Unable to contact slurm controller",
    "Socket timed out",
    "Connection timed out",
    "Connection refused",
    "Connection reset by peer",
    "Zero Bytes were transmitted or received",
    "Slurm backup controller in standby mode",
    "Slurmctld is shutting down",
    "Rate limit exceeded",  # 23.02 and later
    "Transport endpoint is not connected",
    "Unable to connect",
    _NOT_CONFIGURED,
    "Unexpected message received",  # scontrol update's message when slurmctld does not answer
    "munged",
    "Munge decode failed",
    "Protocol authentication error",
)
# A user's variables for these commands, and for the loader, would change their answers: filters and
# formats, messages on stderr, libraries that print. What stays says which Slurm, and who asks.
_COMMANDS = ("SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SDIAG_", "SACCT_", "SACCTMGR_")
_DROPPED = (*_COMMANDS, "SLURM_", "LD_")
_KEPT = ("SLURM_CONF", "SLURM_JWT", "SLURM_SACK", "LD_LIBRARY_PATH")
_OUR_SETTINGS = {
    "LC_ALL": "C",
    "SLURM_TIME_FORMAT": "%s",  # Unix seconds
    "SLURM_BITSTR_LEN": "0",  # array expressions of any length
}


@dataclass(frozen=True, slots=True)
class SlurmRunner:
    """Runs Slurm's commands; ``environment`` replaces this process's own (for tests)."""

    timeout_s: float = DEFAULT_TIMEOUT_S
    environment: Mapping[str, str] | None = None

    def read(self, *command: str, accepted_status: int = 0) -> str:
        """Return what a command that changes nothing prints.

        ``accepted_status`` is an exit status that counts as 0 if the command prints no error.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
            NoCommandError: the command cannot be run.
            GatewayError: the command failed for another reason.
        """
        return self._run(
            command, self._plain_environment(), GatewayError, accepted_status=accepted_status
        )

    def change(self, *command: str, stdin: str = "") -> str:
        """Run a command that changes jobs, with ``stdin`` on its standard input.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
            RefusedError: Slurm refuses; it may have carried out the command for some elements.
        """
        return self._run(command, self._plain_environment(), RefusedError, stdin)

    def submit(
        self, *command: str, script: str, dropped: Collection[str] = (), **variables: str
    ) -> str:
        """Run sbatch in the caller's own environment, with ``script`` on its standard input.

        ``variables`` are added to the environment, which the job inherits; ``dropped`` are removed.

        Raises: as for ``change``.
        """
        own = self._own_environment() | variables
        kept = {name: value for name, value in own.items() if name not in dropped}
        return self._run(command, kept, RefusedError, script)

    def _own_environment(self) -> dict[str, str]:
        return dict(os.environ if self.environment is None else self.environment)

    def _plain_environment(self) -> dict[str, str]:
        return {
            name: value
            for name, value in self._own_environment().items()
            if name.startswith(_KEPT) or not name.startswith(_DROPPED)
        } | _OUR_SETTINGS

    def _run(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        failure: type[GatewayError],
        stdin: str = "",
        accepted_status: int = 0,
    ) -> str:
        shown = " ".join(command[:3])
        configured = environment.get("SLURM_CONF")
        if configured and not Path(configured).exists():  # Slurm would look for it for a minute
            raise SlurmUnavailableError(f"SLURM_CONF={configured} does not exist; {_CONFIGURE}")
        try:
            # Without ``stdin`` the input is empty: no command may wait for a terminal.
            done = subprocess.run(
                command,
                input=stdin.encode("utf-8", "surrogateescape"),
                capture_output=True,
                env=environment,
                timeout=self.timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            message = f"{shown}: no answer within {self.timeout_s:g} s"
            raise SlurmUnavailableError(message) from error
        except OSError as error:
            advice = "" if "/" in command[0] else "; Slurm's commands must be on PATH"
            reason = f"cannot be run ({error.strerror}){advice}"
            raise NoCommandError(f"{command[0]}: {reason}") from error
        words = _error_line(_text(done.stderr))
        if done.returncode == 0 or (done.returncode == accepted_status and not words):
            return _text(done.stdout)
        raise error_for(f"{shown}: {words or f'exit status {done.returncode}'}", failure)


def error_for(message: str, otherwise: type[GatewayError]) -> GatewayError:
    """Return the error for Slurm's message: unavailable, or ``otherwise``."""
    unavailable = any(sign in message for sign in _UNAVAILABLE)
    return SlurmUnavailableError(message) if unavailable else otherwise(message)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")


def _error_line(stderr: str) -> str:
    """Return one line for a log, without blank lines and elements without an error."""
    if _NOT_CONFIGURED in stderr:
        return f"{_NOT_CONFIGURED} (no slurm.conf, no answer by DNS); {_CONFIGURE}"
    lines = (line.strip() for line in stderr.splitlines())
    return "; ".join(line for line in lines if line and not line.endswith(": No error"))
