"""Shows results to people and programs: tables, charts, pages and files. All figures come from `analysis`."""
