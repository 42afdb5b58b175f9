"""The `ashore` command: parse, make one call into the library, say where the result is."""
