"""Pages of the dashboard: for each the type of its query, the type of its answer, and the view that makes the
answer."""
