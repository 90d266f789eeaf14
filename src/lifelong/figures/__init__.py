"""Charts from plain data, one module each, as SVG to stand in a page. Nothing here needs torch."""
