"""Other notations for the same programs."""
