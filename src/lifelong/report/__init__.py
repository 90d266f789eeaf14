"""Runs as an HTML page and in the terminal."""
