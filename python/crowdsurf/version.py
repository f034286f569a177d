"""The release that this package is of: the same as that of the agent's programs."""

__version__ = "0.1.0"
