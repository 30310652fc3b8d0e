"""Charts to SVG: scales, axes and marks. What it draws with has classes, so that the style sheet decides colours."""
