"""HTTP in: the Flask application, and the command line."""
