"""The package as a whole: what importing it needs and costs, and that every public name is there."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import phcgnn

OPTIONAL = ("rdkit", "ogb", "pandas", "pyarrow", "matplotlib", "sklearn", "scipy")


def modules():
    return [m.name for m in pkgutil.walk_packages(phcgnn.__path__, "phcgnn.")]


def test_every_public_name_is_there_and_lists_are_sorted():
    for name in modules():
        module = importlib.import_module(name)
        public = getattr(module, "__all__", [])
        for item in public:
            assert getattr(module, item, None) is not None, f"{name}.{item}"
        constants = [item for item in public if item.isupper()]
        classes = [item for item in public if item not in constants and item[0].isupper()]
        rest = [item for item in public if item not in constants and item not in classes]
        assert list(public) == sorted(constants) + sorted(classes) + sorted(rest), name


def test_importing_needs_the_core_dependencies_alone():
    """With the optional packages made unimportable, everything still imports.

    torchmetrics comes first: it imports matplotlib wherever that is installed.
    """
    first = "import sys, torch_geometric, torchmetrics\n"
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in OPTIONAL[:5])
    imports = "".join(f"import {name}\n" for name in modules() if not name.startswith("phcgnn.cli"))
    subprocess.run([sys.executable, "-c", f"{first}{blocked}{imports}"], check=True)


def test_version_is_the_installed_one():
    from importlib.metadata import version

    assert phcgnn.__version__ == version("phcgnn")
