"""What was learned, elsewhere: files for other runtimes, the Hub, an HTTP endpoint."""
