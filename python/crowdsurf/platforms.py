"""Where an agent can be: on Linux. Elsewhere the package is a client only, and a script trains alone."""

from __future__ import annotations

import sys

_NAMES = {"darwin": "macOS", "win32": "Windows"}


def client_only() -> str:
    """Why this system has no agent, in words; empty on Linux."""
    platform: str = sys.platform   # a variable: type checkers take sys.platform for a constant
    if platform.startswith("linux"):
        return ""
    return f"crowdsurf is client only on {_NAMES.get(platform, platform)}, and agents run on Linux"
