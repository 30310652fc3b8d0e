"""Start a module of opmark in a guest's interpreter: `python bootstrap.py HOME SUPPORT MODULE ARGUMENT...`

This file is run by its path and uses nothing but the standard library. Its syntax is that of Python 3.6, so that an old
interpreter reports that it is too old, and not a syntax error.
"""

import importlib.util
import runpy
import sys

OLDEST = (3, 10)
NEEDED = ("msgspec", "psutil", "numpy")


def main():  # type: ignore[no-untyped-def]
    if sys.version_info < OLDEST:
        this, oldest = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
        sys.exit("{} is Python {}; a worker needs {} or newer".format(sys.executable, this, oldest))  # noqa: UP032
    _, home, support, module = sys.argv[:4]
    # The folder of this file must not stay on the path: its neighbours would be taken for top-level modules. opmark
    # comes from the parent, whatever is installed here. The support folder comes last, so that the guest's own packages
    # win.
    sys.path[0] = home
    if support:
        sys.path.append(support)
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        needs = "{0} lacks {1}, which a worker needs: {0} -m pip install {2}"
        sys.exit(needs.format(sys.executable, ", ".join(missing), " ".join(missing)))
    sys.argv = [module, *sys.argv[4:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()  # type: ignore[no-untyped-call]
