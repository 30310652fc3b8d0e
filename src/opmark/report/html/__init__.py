"""Pages: templates, style and the little script that the report and the dashboard share."""
