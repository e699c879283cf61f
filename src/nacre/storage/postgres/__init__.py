"""Sessions in PostgreSQL: the same records, numbers and promises as in files, for more than one machine."""
