"""torch's names of what lives elsewhere: ``svod.utils.data`` is `svod.data`."""
