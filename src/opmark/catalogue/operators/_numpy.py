"""NumPy, imported at its first use: listing the catalogue does not need it.

`from opmark.catalogue.operators import _numpy as np` then reads like `import numpy as np`.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import numpy

    value = getattr(numpy, name)
    globals()[name] = value  # so that the next access costs nothing: launches are timed
    return value
