"""hivemind 1.1.12, an anchor of some benches, in an environment of its own below build/. As a script: installs it."""
import pathlib
import subprocess
import sys

PLACE = pathlib.Path(__file__).resolve().parents[1] / "build" / "hivemind"
PYTHON = PLACE / "bin" / "python"
ENVIRONMENT = {"HIVEMIND_LOGLEVEL": "ERROR", "HIVEMIND_MEMORY_SHARING_STRATEGY": "file_descriptor"}


def install():
    """Once. The package holds its network daemon; torch is the system's, which was built for the first numpy."""
    if not (PLACE / "installed").exists():
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--clear", "--system-site-packages", PLACE], check=True)
        subprocess.run([PLACE / "bin" / "pip", "install", "-q", "hivemind==1.1.12", "numpy<2"], check=True, stdout=sys.stderr)
        (PLACE / "installed").touch()
    return PYTHON


if __name__ == "__main__":
    install()
