"""Where an agent can be: on Linux, beside one process that has the whole model. Elsewhere the package is a client only, and a
script trains alone.
"""

from __future__ import annotations

import sys
from typing import Iterable

_NAMES = {"darwin": "macOS", "win32": "Windows"}


def client_only() -> str:
    """Why this system has no agent, in words; empty on Linux."""
    platform: str = sys.platform   # a variable: type checkers take sys.platform for a constant
    if platform.startswith("linux"):
        return ""
    return f"crowdsurf is client only on {_NAMES.get(platform, platform)}, and agents run on Linux"


def refuse_spread(found: Iterable[str]) -> None:
    """ValueError where something is found that spreads one model over processes or devices."""
    words = ", ".join(found)
    if words:
        raise ValueError(f"{words}: a worker of a job is one process with a whole model on one device. Leave this out, and "
                         "give the job more workers")
