"""The page at `/`: HTML and style, no script, nothing from elsewhere."""
