"""Methods: each on one page, composed from the parts of `learning`."""
