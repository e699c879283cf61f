"""Where messages come from and answers go to."""
