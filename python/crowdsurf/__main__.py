"""`python3 -m crowdsurf export`. The other commands are programs for Linux, and so is `crowdsurf export`, of checkpoints."""

from __future__ import annotations

import argparse
import sys
from typing import List, Optional

from .export import export_model
from .version import __version__


def main(words: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="crowdsurf", description="The commands of Crowdsurf that need Python.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    export = commands.add_parser("export", help="write the model that a job leaves as a folder for Hugging Face's libraries")
    export.add_argument("model", metavar="MODEL", help="model.safetensors, the folder that holds it, or a URL")
    export.add_argument("out", metavar="OUT", help="the folder to write")
    export.add_argument("--like", metavar="DIR", help="the model that the job began with, as save_pretrained() wrote it: its "
                        "configuration is copied, and what the job did not average")
    options = parser.parse_args(words)
    try:
        export_model(options.model, options.out, like=options.like)
    except (ImportError, OSError, ValueError) as error:
        print(f"crowdsurf: {error}", file=sys.stderr)
        return 2
    print(f"{options.out} is written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
