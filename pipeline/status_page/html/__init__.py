"""The page at `/`: HTML and CSS without scripts or external resources."""
