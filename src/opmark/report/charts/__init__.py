"""Items to charts: one file a figure, which knows what to show and nothing of how it is drawn."""
