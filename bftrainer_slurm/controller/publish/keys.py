"""The keys of the web page: one for each user, and one that shows everything.

The keeper gives a user's key only to that user, with the rest of the status. The key that shows
everything is in the state folder.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path
from urllib.parse import quote

from bftrainer_slurm.keeper.home import StateError, own_text

logger = logging.getLogger(__name__)

_KEY_FILE = "page.key"


def secret_of(folder: Path) -> str:
    """Return the key that shows everything; create it if there is none.

    Raises:
        OSError, StateError: the key cannot be read or created.
    """
    return own_text(folder / _KEY_FILE)


def key_in(folder: Path) -> str:
    """Return the same key; empty on errors, and then everybody sees only what is public."""
    try:
        return secret_of(folder)
    except (OSError, StateError) as error:
        logger.error("no key for the page: %s", error)
        return ""


def key_of(user: str, secret: str) -> str:
    """Return a user's key, derived from the key that shows everything."""
    return f"{user}.{hmac.new(secret.encode(), user.encode(), hashlib.sha256).hexdigest()}"


def link_of(address: str, array: int, user: str, secret: str) -> str:
    """Return the address at which the owner of a trainer sees all its data.

    Browsers do not send what follows the #, so the key does not get into any log.
    """
    return f"http://{address}/#trainer={array}&key={quote(key_of(user, secret))}"
