"""PARAM's programs, as in `python -m opmark.interop.param.pytorch.run_benchmark -c simple_add.json`."""
