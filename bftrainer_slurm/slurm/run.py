"""The one place that runs Slurm's commands, and turns their failures into errors of this package.

No shell, no standard input, a time limit, and an environment in which the output is the same
everywhere; for a submission the caller's own environment, because the job inherits it.
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

# Slurm's commands try again by themselves for MessageTimeout (10 s unless configured) or longer.
DEFAULT_TIMEOUT_S = 60.0

# No slurm.conf here, and no slurmctld that DNS names to ask for one.
_NOT_CONFIGURED = "Could not establish a configuration source"
_CONFIGURE = "set SLURM_CONF to this cluster's slurm.conf"
# Messages of slurm_strerror() (22.05 to 26.05) for errors that are not the request's fault.
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
# A user may have set filters and formats for these commands that would change their answers.
_OUR_OUTPUT = ("SQUEUE_", "SINFO_", "SCONTROL_", "SCANCEL_", "SDIAG_")
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

    def read(self, *command: str, also: int = 0) -> str:
        """Return what a command that changes nothing prints.

        ``also`` is an exit status that counts as 0 if the command prints no error.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
            NoCommandError: the command cannot be run.
            GatewayError: it failed for another reason.
        """
        return self._run(command, self._plain_environment(), GatewayError, also=also)

    def change(self, *command: str, given: str = "") -> str:
        """Run a command that changes jobs, with ``given`` on its standard input.

        Raises:
            SlurmUnavailableError: slurmctld does not answer.
            RefusedError: Slurm refuses; if only for some elements, it was done for the others.
        """
        return self._run(command, self._plain_environment(), RefusedError, given)

    def submit(
        self, *command: str, script: str, dropped: Collection[str] = (), **variables: str
    ) -> str:
        """Run sbatch in the caller's own environment, with ``script`` on its standard input.

        The ``variables`` are added to the environment, so that the job has them too; those that
        are ``dropped`` are not in it.

        Raises: as for ``change``.
        """
        own = self._own_environment() | variables
        kept = {name: value for name, value in own.items() if name not in dropped}
        return self._run(command, kept, RefusedError, script)

    def _own_environment(self) -> dict[str, str]:
        return dict(os.environ if self.environment is None else self.environment)

    def _plain_environment(self) -> dict[str, str]:
        own = self._own_environment()
        kept = {name: value for name, value in own.items() if not name.startswith(_OUR_OUTPUT)}
        kept.pop("SLURM_CLUSTERS", None)
        return kept | _OUR_SETTINGS

    def _run(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        failure: type[GatewayError],
        given: str = "",
        also: int = 0,
    ) -> str:
        shown = " ".join(command[:3])
        configured = environment.get("SLURM_CONF")
        if configured and not Path(configured).exists():  # Slurm would look for it for a minute
            raise SlurmUnavailableError(f"SLURM_CONF={configured} does not exist; {_CONFIGURE}")
        try:
            # Without ``given`` the input is empty: no command may wait for a terminal.
            done = subprocess.run(
                command,
                input=given.encode("utf-8", "surrogateescape"),
                capture_output=True,
                env=environment,
                timeout=self.timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            message = f"{shown}: no answer within {self.timeout_s:g} s"
            raise SlurmUnavailableError(message) from error
        except OSError as error:
            reason = f"cannot be run ({error.strerror}); Slurm's commands must be on PATH"
            raise NoCommandError(f"{command[0]}: {reason}") from error
        words = _slurms_words(_text(done.stderr))
        if done.returncode == 0 or (done.returncode == also and not words):
            return _text(done.stdout)
        raise error_for(f"{shown}: {words or f'exit status {done.returncode}'}", failure)


def error_for(message: str, otherwise: type[GatewayError]) -> GatewayError:
    """Return the error for Slurm's message: unavailable, or ``otherwise``."""
    unavailable = any(sign in message for sign in _UNAVAILABLE)
    return SlurmUnavailableError(message) if unavailable else otherwise(message)


def _text(output: bytes) -> str:
    return output.decode("utf-8", "replace")


def _slurms_words(stderr: str) -> str:
    """One line for a log, without blank lines and elements without an error."""
    if _NOT_CONFIGURED in stderr:
        return f"{_NOT_CONFIGURED} (no slurm.conf, no answer by DNS); {_CONFIGURE}"
    lines = (line.strip() for line in stderr.splitlines())
    return "; ".join(line for line in lines if line and not line.endswith(": No error"))
