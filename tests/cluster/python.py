"""An image with Python: the interpreter that runs these tests, its library, and files of these tests."""

import os
import sys
import sysconfig
from pathlib import Path

from cluster.images import Image

# Large, and nothing that a program in a pod uses.
LEFT_OUT = {"test", "idlelib", "lib2to3", "ensurepip", "tkinter", "turtledemo", "site-packages", "dist-packages", "__pycache__",
            "pydoc_data"}
PLACE = "srv"


def image(name, scripts):
    """`scripts`: files that are in /srv of the image, by their names."""
    program = Path(os.path.realpath(sys.executable))
    made = Image(name, env=(f"PATH={program.parent}:/bin", f"PYTHONHOME={sys.base_prefix}", "PYTHONDONTWRITEBYTECODE=1"))
    made.add_program(str(program).lstrip("/"), program)
    made.add_program("bin/python3", program)
    for file in library_files(Path(sysconfig.get_path("stdlib"))):
        add = made.add_program if ".so" in file.suffixes else made.add
        add(str(file).lstrip("/"), file)
    for script in scripts:
        made.add(f"{PLACE}/{script.name}", script)
    return made


def library_files(directory):
    for place, directories, files in os.walk(directory):
        directories[:] = [name for name in directories if name not in LEFT_OUT and not name.startswith("config-")]
        yield from (Path(place, name) for name in files if not name.endswith(".a"))
