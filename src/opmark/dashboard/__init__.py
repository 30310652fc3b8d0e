"""The dashboard: pages over a store, and the same as JSON."""
