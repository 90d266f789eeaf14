"""Runs as an HTML page and in the terminal."""

from lifelong.extras import require_extra

require_extra("altair", "jinja2", "vl_convert", "sklearn", extra="report")
