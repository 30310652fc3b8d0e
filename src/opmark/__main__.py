"""`python -m opmark` is `opmark`."""

from opmark.cli.main import main

main()
