"""The HTML report, and the templates, styles and scripts that it shares with the dashboard."""
