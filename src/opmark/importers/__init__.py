"""Importers, which read files of other systems as workloads: one package per system."""
