"""What a session learned, gathered and shown: on the terminal, as JSON, in other plugins' reports."""
