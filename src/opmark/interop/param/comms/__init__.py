"""`opmark param comms`: PARAM's comms.py with its options and its table, measured by opmark on several ranks."""
