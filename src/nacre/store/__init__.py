"""Many sessions under their keys; what their records mean is not known here."""
