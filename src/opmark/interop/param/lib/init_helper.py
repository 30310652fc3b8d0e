"""PARAM's lib.init_helper: loading modules that register operators, and its logger."""

from __future__ import annotations

import logging
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType


def get_logger() -> logging.Logger:
    return logging.getLogger("opmark.param")


def init_logging(log_level: int = logging.INFO) -> logging.Logger:
    """Set the format and the level of messages, and return the logger, which scripts for PARAM keep."""
    logging.basicConfig(format="[%(asctime)s] %(filename)s:%(lineno)-4d [%(levelname)s]: %(message)s")
    get_logger().setLevel(log_level)
    return get_logger()


def load_modules(package: ModuleType) -> None:
    """Import every module of a package; one that cannot be imported is named, and the others stay."""
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        try:
            import_module(module.name)
        except (ImportError, OSError, AttributeError) as error:
            get_logger().error(f"Failed to import module: {module.name}: {type(error).__name__}: {error}")
