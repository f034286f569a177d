"""Where the programs of the test cluster are: in PATH, or where tests/cluster/cluster built them."""
import os
import pathlib
import shutil


def find(name):
    """The path of kubectl, helm, ...; the name itself where there is none, so that running it says which one is missing."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(pathlib.Path.home() / ".cache")
    home = pathlib.Path(os.environ.get("CLUSTER_HOME") or pathlib.Path(cache) / "crowdsurf-cluster")
    built = home / "bin" / name
    return str(built) if built.exists() else shutil.which(name) or name
